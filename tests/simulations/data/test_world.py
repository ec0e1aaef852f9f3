"""What a simulation measures where the optimum would take too long."""

import parley
from parley.simulations.data import world


def test_data_that_are_too_large_to_solve_have_figures_and_no_baseline(tmp_path, monkeypatch):
    monkeypatch.setattr(world, "_SOLVABLE", 10)
    job = parley.load_job(overrides=["algorithm.rounds=2", "secure-aggregation.masked-check=false"])
    result = parley.run(job, out=tmp_path / "run")
    assert result.summary.accuracy is not None
    assert result.summary.loss is not None
    assert result.summary.baseline_accuracy is None
    assert result.summary.excess_loss is None
    assert result.summary.baseline_judgement is None
