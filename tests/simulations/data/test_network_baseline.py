"""The non-private baseline of a network costs no more than the private rounds, and still learns."""

import numpy as np
import pytest

import parley
from parley.simulations.data import network_experiment


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list:
    """Note the settings with which the baseline trains."""
    found: list = []
    own = network_experiment.train_party

    def train_party(network, theta, data, training):
        found.append((training, len(data.labels)))
        return own(network, theta, data, training)

    monkeypatch.setattr(network_experiment, "train_party", train_party)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("records", [300, 3000])
def test_a_baseline_sees_as_many_records_as_the_rounds_and_learns(records, trained, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(records, 4))
    keys = {"model.hidden": [8], "dp-sgd.local-steps": 5, "dp-sgd.sampling-rate": 0.5}
    keys["secure-aggregation.masked-check"] = False
    run = parley.run(
        x, (x[:, 0] * x[:, 1] > 0).astype(int), model="mlp", job=keys,
        epsilon=1, parties=3, rounds=8, out=tmp_path / "run",
    )  # fmt: skip
    ((training, count),) = trained
    private = 8 * 5 * 0.5 * count
    seen_by_baseline = training.steps * training.sampling_rate * count
    assert training.steps == 500
    assert seen_by_baseline <= max(private, 500 * 64) * (1 + 1e-9)
    assert run.summary.baseline_accuracy > 0.8  # 0.5 is chance; a linear model reaches no more
