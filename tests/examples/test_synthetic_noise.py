"""The noise on what is released for synthetic data: of the scale that is stated, and no other."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from parley.client.algorithms.task_codec import decode_task
from parley.prediction.model_loading import open_model
from parley.presentation.synthetic_text import compute_cell_noise
from parley.server.jobs.job_file import load_job
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100], bins = 25, step = 1 }
ward = { kind = "categorical", categories = ["A", "B", "C", "D"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""


@pytest.mark.parametrize(
    "kind", [("marginals",), ("random-features", "algorithm.frequencies=60")], ids=lambda of: of[0]
)
@pytest.mark.parametrize("point", ["share", "server"])
def test_released_sums_have_the_noise_that_is_stated(tmp_path, kind, point):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "age": rng.integers(0, 101, 200),
            "ward": rng.choice(list("ABCD"), 200),
            "sick": rng.choice(["yes", "no"], 200),
        }
    )
    frame.write_csv(tmp_path / "people.csv")
    (tmp_path / "people.schema.toml").write_text(SCHEMA)
    job = load_job(
        overrides=[
            *(f"algorithm.kind={kind[0]}", *kind[1:], "algorithm.steps=1", "model.kind=table"),
            *(f"data.source={tmp_path / 'people.csv'}", "parties.count=4", "run.seed=3"),
            f"data.schema={tmp_path / 'people.schema.toml'}",
            *("privacy.epsilon=1", "privacy.delta=1e-5", f"privacy.noise-point={point}"),
        ]
    )
    done = simulate(job, out=tmp_path / "run")
    kept, world = open_model(done.folder), load_experiment(job)
    summed = decode_task(kept.description["task"])
    exact = summed.sum_records(world.block.features, world.block.labels)
    noise = kept.tensors["theta"].astype(np.float64) - exact
    assert len(noise) > 150

    def fits(scale):
        return 1e-4 < stats.chi2.cdf((noise**2).sum() / scale**2, len(noise)) < 1 - 1e-4

    stated = compute_cell_noise(done.summary)
    assert fits(stated)
    assert not fits(stated * 2 / 3)
    assert not fits(stated * 3 / 2)
    assert stats.kstest(noise / stated, "norm").pvalue > 1e-4
