"""The Flower app of the documentation: it learns, and nothing in it knows of Parley."""

import ast
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from parley.server.jobs.job_file import load_job
from parley.simulations.engine.fast_engine import simulate

APP = Path(__file__).parents[2] / "examples" / "flower_app.py"
KEYS = (
    *(f"model.kind={APP}:app", "algorithm.kind=flower", "privacy.unit=party"),
    *("parties.count=60", "privacy.epsilon=20", "run.seed=7"),
)


def measure(folder: Path) -> float:
    """The share of the last 297 images that a run's arrays read right: no party has them."""
    arrays = load_file(folder / "arrays.safetensors")
    images, labels = load_digits(return_X_y=True)
    scores = images[1500:] / 16 @ arrays["layer.weight"].T + arrays["layer.bias"]
    return float((scores.argmax(1) == labels[1500:]).mean())


def test_it_learns_from_what_its_parties_read_by_themselves(tmp_path: Path) -> None:
    """A few seconds: ten rounds of 60 parties; little noise, from a seed."""
    run = simulate(load_job(overrides=list(KEYS)), out=tmp_path / "run")
    assert measure(run.folder) > 0.7  # guessing: 0.1
    assert run.summary.primary.unit == "party"
    assert run.summary.records_by_party == ()


def test_its_settings_reach_it(tmp_path: Path) -> None:
    """With a rate of 0 no party moves: the model is its initial one and the noise."""
    keys = [*KEYS, "algorithm.settings.lr=0.0", "algorithm.rounds=1", "algorithm.average=false"]
    run = simulate(load_job(overrides=keys), out=tmp_path / "run")
    start = simulate(load_job(overrides=[*keys, "privacy.epsilon=19"]), out=tmp_path / "other")
    noise = run.summary.primary.noise.scale + start.summary.primary.noise.scale
    # 650 coordinates: the largest of two draws' distance is below 8 scales but for 10⁻¹¹.
    assert np.abs(run.theta - start.theta).max() < 8 * noise


def test_nothing_in_it_knows_of_parley() -> None:
    tree = ast.parse(APP.read_text(encoding="utf-8"))
    imported = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None), *(each.name for each in node.names))
        if name
    ]
    assert "flwr.clientapp" in imported
    assert not [name for name in imported if "parley" in name]


def test_each_party_may_be_given_its_own_file(tmp_path: Path) -> None:
    images, labels = load_digits(return_X_y=True)
    for party in range(3):
        np.savez(tmp_path / f"party-{party}.npz", images=images[party::3], labels=labels[party::3])
    keys = [*KEYS, "parties.count=3", f"data.source={tmp_path}/party-*.npz", "algorithm.rounds=2"]
    run = simulate(load_job(overrides=keys), out=tmp_path / "run")
    assert run.summary.status == "complete"
    (tmp_path / "party-1.npz").write_bytes(b"no file of arrays")
    with pytest.raises(ValueError, match=r"party 1\), got .*flower_app.py, line"):
        simulate(load_job(overrides=keys), out=tmp_path / "broken")
