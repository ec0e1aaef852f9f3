"""A run of real parties on one machine is summed up as the fast engine sums up its own."""

from __future__ import annotations

import pytest
from in_process import InProcessTransport
from safetensors.numpy import load_file

from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.run_coordinator import coordinate
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.party_folders import party_folders, prepare_parties
from parley.simulations.metrics.process_run_metrics import build_local_summary

BASE = (
    "parties.count=3",
    "algorithm.rounds=2",
    "data.records=150",
    "run.seed=3",
    "secure-aggregation.backend=masked",
)
NETWORK = ("algorithm.kind=fedavg", "model.hidden=[4]", "dp-sgd.sampling-rate=0.5")
JOBS = {
    "linear": (),
    "both": (
        *NETWORK,
        "model.kind=mlp",
        "privacy.unit=both",
        "privacy.party-epsilon=8",
        "parties.min-records=20",
    ),
    "private components": (*NETWORK, "model.kind=pca-mlp", "model.components=4"),
}


@pytest.mark.parametrize(
    "name", ["linear", "both", pytest.param("private components", marks=pytest.mark.heavy)]
)
def test_it_says_what_the_fast_engine_says(tmp_path, name) -> None:
    job = load_job(overrides=[*BASE, *JOBS[name]])
    experiment = load_experiment(job)
    deployment = prepare_parties(job, tmp_path / "parties", experiment=experiment)
    homes = party_folders(tmp_path / "parties", 3)
    folder = RunFolder.create(job, tmp_path / "run")
    served = coordinate(
        job,
        transport=InProcessTransport(homes),
        deployment=deployment,
        folder=folder,
    )
    model = load_file(folder.path / "model.safetensors")
    ours = build_local_summary(served, job=job, experiment=experiment, model=model, parties=homes)
    theirs = simulate(job, out=tmp_path / "fast").summary
    # Memory is told of an engine that has all parties in its own process.
    alone = {"peak_mib", "data_mib"}
    assert ours.to_json().keys() - {"deployment"} == theirs.to_json().keys() - alone
    assert [of.epsilon for of in ours.guarantees] == [of.epsilon for of in theirs.guarantees]
    for key in ("dp_sgd", "records_by_party", "baseline_loss", "partition"):
        assert getattr(ours, key) == getattr(theirs, key), key
    if name == "linear":
        assert ours.loss == theirs.loss
    else:  # parties alone draw batches and noise of their own
        assert ours.loss == pytest.approx(theirs.loss, rel=0.2, abs=0.5)
