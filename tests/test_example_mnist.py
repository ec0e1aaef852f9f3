"""The MNIST example, where its data lie beside the project: a short run spends as told."""

import os
from pathlib import Path

import numpy as np
import pytest

from parley.server.jobs.job_file import load_job
from parley.simulations.data import simulated_experiment
from parley.simulations.engine.fast_engine import simulate

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("PARLEY_DATA", ROOT.parent / "shared" / "data")) / "mnist.npz"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tenth of the images: as many are read as are looked at."""
    if not DATA.is_file():
        pytest.skip(f"needs {DATA} (set PARLEY_DATA to its folder)")
    path = tmp_path_factory.mktemp("mnist") / "small.npz"
    with np.load(DATA) as whole:
        np.savez(path, **{name: whole[name][: len(whole[name]) // 10] for name in whole.files})
    return path


@pytest.mark.parametrize("parties", [1, 10])
def test_a_short_run_of_the_example_learns_within_its_budget(tmp_path, monkeypatch, small, parties):
    monkeypatch.chdir(ROOT)
    overrides = [
        f"data.source={small}",
        f"data.test-source={small}",
        f"parties.count={parties}",
        f"parties.min-records={6000 // parties}",
        "model.hidden=[50]",
        "algorithm.rounds=3",
        "run.seed=1",
    ]
    job = load_job(ROOT / "examples" / "mnist-dpsgd.toml", overrides=overrides)
    result = simulate(job, out=tmp_path / "run")
    assert result.summary.status == "complete"
    assert 1.99 < result.summary.primary.epsilon <= 2
    assert result.summary.accuracy > (0.6 if parties == 1 else 0.2)


def test_a_short_run_of_the_scattering_example_learns_within_its_budget(
    tmp_path, monkeypatch, small
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        simulated_experiment, "_MAX_SOLVABLE_ENTRIES", 0
    )  # the optimum is not what is looked at
    smaller = tmp_path / "smaller.npz"
    with np.load(small) as images:
        parts = {name: images[name][: 2000 if "train" in name else 200] for name in images.files}
    np.savez(smaller, **parts)
    overrides = [
        f"data.source={smaller}",
        f"data.test-source={smaller}",
        "parties.min-records=200",
        "algorithm.rounds=8",
        "algorithm.learning-rate=100",
        "privacy.epsilon=8",
    ]
    job = load_job(ROOT / "examples" / "mnist-scattering.toml", overrides=overrides)
    result = simulate(job, out=tmp_path / "run")
    assert result.summary.status == "complete"
    assert 7.9 < result.summary.primary.epsilon <= 8
    assert result.summary.accuracy > 0.5
    assert result.summary.features == "scattering, data-independent"
