"""What a plan says of memory, beside what a run of it held at most (`peak_mib`)."""

import json
import subprocess
import sys

import pytest

import parley

FACTOR = 1.5
"""Within which a plan's memory is a run's, either way."""

_UPDATES = (
    *("algorithm.kind=fedavg", "model.kind=mlp", "algorithm.rounds=2", "dp-sgd.local-steps=2"),
    *("privacy.epsilon=8", "privacy.delta=1e-6", "data.source=synthetic", "data.records=25000"),
    *("parties.count=800", "parties.min-records=20"),
)
JOBS = {
    "optima": ("algorithm.kind=output-perturbation", "parties.count=20"),
    "gradients": ("data.source=synthetic", "data.records=25000", "parties.count=1000"),
    "updates of records": (*_UPDATES, "parties.count=200", "parties.min-records=80"),
    "sampled updates": (*_UPDATES, "privacy.unit=party", "parties.per-round=0.02"),
    "a number of updates": (*_UPDATES, "privacy.unit=party", "parties.per-round=40"),
}


def planned(*overrides):
    return parley.plan(parley.load_job(overrides=list(overrides))).simulation.memory_mib


@pytest.mark.parametrize(
    "name", ["optima", *(pytest.param(own, marks=pytest.mark.heavy) for own in [*JOBS][1:])]
)
def test_a_run_holds_about_what_its_plan_said(name, tmp_path):
    own = (*JOBS[name], f"run.out={tmp_path}", "run.evaluate-every=0")
    sets = [text for each in own for text in ("--set", each)]
    command = [sys.executable, "-m", "parley", "run", "--json", *sets]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = json.loads(told.stdout)["peak_mib"]
    assert planned(*own) / FACTOR < peak < planned(*own) * FACTOR


@pytest.mark.heavy
def test_contributions_are_counted_as_they_are_held_a_piece_at_a_time():
    """Sampled parties of a network were said to take 4 GiB, of which 10 in 100 were ever there."""
    own = JOBS["sampled updates"]
    assert planned(*own, "parties.count=10000", "data.records=130000") < 800
    masked = ("secure-aggregation.backend=masked", "run.noise-shares=full")
    assert planned(*own, *masked) > 800 * 24_000 * 12 / 2**20
