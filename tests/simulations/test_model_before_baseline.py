"""Nothing optional stands between the last charge and the model on disk."""

import json

import pytest

from parley.deploy.process_engines import ENGINES, run_processes
from parley.prediction.model_loading import load_model
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job
from parley.simulations.data.network_experiment import NetworkExperiment
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.metrics import synthetic_quality

QUICK = ("parties.count=3", "algorithm.rounds=2", "secure-aggregation.masked-check=false")
NETWORK = (*QUICK, "model.kind=mlp", "model.hidden=[3]", "algorithm.kind=fedavg")
NETWORK = (*NETWORK, "dp-sgd.local-steps=1")
PROCESSES = (
    *("parties.count=3", "algorithm.rounds=1", "data.records=90", "run.engine=processes"),
    "secure-aggregation.backend=masked",
)
KINDS = {"linear": (Experiment, QUICK), "network": (NetworkExperiment, NETWORK)}


def stop(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("world", "job"), KINDS.values(), ids=KINDS)
def test_a_stop_in_the_baseline_leaves_model_and_summary_and_resumes(
    world, job, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    trains = world.compute_baseline
    monkeypatch.setattr(world, "compute_baseline", stop)
    with pytest.raises(KeyboardInterrupt):
        simulate(load_job(overrides=job), out=folder)
    monkeypatch.setattr(world, "compute_baseline", trains)
    model = load_model(folder)
    kept = json.loads((folder / "summary.json").read_text())
    assert kept["status"] == "complete"
    assert kept["rounds_done"] == 2
    assert kept["guarantees"][0]["epsilon"] == pytest.approx(1, rel=1e-3)
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        charged = ledger.get_head()
    again = simulate(None, resume=folder)
    assert again.summary.baseline_accuracy is not None
    assert (load_model(folder).theta == model.theta).all()
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.get_head() == charged


def test_a_failure_in_a_tables_figures_leaves_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic_quality, "take_rows", stop)
    job = load_job(
        overrides=[
            *("parties.count=3", "secure-aggregation.masked-check=false"),
            *("model.kind=table", "algorithm.kind=marginals", "algorithm.steps=3"),
        ]
    )
    with pytest.raises(KeyboardInterrupt):
        simulate(job, out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert kept["synthetic"]["rows"] > 0
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize(("world", "job"), KINDS.values(), ids=KINDS)
def test_a_job_without_baseline_trains_none(world, job, tmp_path, monkeypatch):
    monkeypatch.setattr(world, "compute_baseline", stop)
    asked = load_job(overrides=[*job, "run.baseline=false"])
    summary = simulate(asked, out=tmp_path / "run").summary
    assert summary.baseline_accuracy is None
    assert summary.accuracy is not None


def test_real_processes_stopped_in_the_baseline_resume_without_a_process(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    trains = Experiment.compute_baseline
    monkeypatch.setattr(Experiment, "compute_baseline", stop)
    with pytest.raises(KeyboardInterrupt):
        ENGINES["processes"](load_job(overrides=PROCESSES), out=folder)
    assert json.loads((folder / "summary.json").read_text())["status"] == "complete"
    theta = load_model(folder).theta
    monkeypatch.setattr(Experiment, "compute_baseline", trains)

    def launch(*_):
        raise AssertionError("a run that is complete needs no process")

    again = run_processes(launch, None, resume=folder)
    assert again.summary.baseline_accuracy is not None
    assert (again.theta == theta).all()
