"""The MNIST example, where its data lie beside the project: a short run spends as told."""

import os
from pathlib import Path

import pytest

from parley.server.jobs.file import load_job
from parley.simulations.engine.fast import simulate

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("PARLEY_DATA", ROOT.parent / "shared" / "data")) / "mnist.npz"


@pytest.mark.skipif(not DATA.is_file(), reason=f"needs {DATA} (set PARLEY_DATA to its folder)")
@pytest.mark.parametrize("parties", [1, 10])
def test_a_short_run_of_the_example_learns_within_its_budget(tmp_path, monkeypatch, parties):
    monkeypatch.chdir(ROOT)
    overrides = [
        f"data.source={DATA}",
        f"data.test-source={DATA}",
        "data.records=6000",
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
