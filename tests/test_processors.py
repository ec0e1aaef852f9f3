"""What is promised to the bit, or compared, on a processor with fewer instructions than this one.

Older kernels of BLAS, numpy, torch and the C library round the last digits otherwise, and so do
another architecture's. Each test runs new processes in the environments of `processors.OLDER`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plans import planned
from processors import OLDER

from parley.client.algorithms.kernel_mean_embedding import compute_waves_digest
from parley.deploy import process_engines
from parley.server.jobs.job_file import load_job

TESTS = Path(__file__).parent

_NETWORK = (
    *("model.kind=mlp", "model.hidden=[4]", "parties.count=3", "algorithm.rounds=2"),
    *("dp-sgd.sampling-rate=0.2", "dp-sgd.local-steps=2"),
)
JOBS = {
    "gradients": ("algorithm.rounds=10",),
    "cks20": (
        *("algorithm.rounds=10", "privacy.noise=discrete-gaussian", "privacy.calibration=cks20"),
        "privacy.noise-point=server",
    ),
    # One of the budgets at which the logarithms of two C libraries give another σ.
    "zcdp": (
        *("algorithm.kind=output-perturbation", "privacy.noise=gaussian", "privacy.delta=1e-6"),
        *("privacy.calibration=zcdp", "privacy.epsilon=1.19", "privacy.noise-point=server"),
    ),
    "objective": ("algorithm.kind=objective-perturbation", "privacy.noise-point=party"),
    "record": ("algorithm.kind=fedavg", *_NETWORK),
    "both": ("algorithm.kind=fedavg", *_NETWORK, "privacy.unit=both", "parties.min-records=100"),
    "distributed": ("algorithm.kind=distributed-dp-sgd", *_NETWORK, "privacy.epsilon=8"),
    "sampled parties": (
        *("algorithm.kind=distributed-dp-sgd", *_NETWORK, "privacy.unit=party"),
        *("privacy.epsilon=8", "parties.per-round=0.5"),
    ),
}
"""Overrides of jobs whose plans rest on logarithms, transforms and searches."""

COMPARED = (
    *("client/algorithms", "client/data", "client/dp_sgd", "client/features", "client/models"),
    *("client/party", "client/queries", "client/solvers", "conformance", "privacy", "secure_agg"),
    *("server/planning", "server/synthetic", "simulations", "statistical"),
    *("test_golden.py", "test_seeded_runs.py", "test_doctests.py"),
)
"""Tests that hold bits or compare numbers."""


def agreed():
    """Return what server and party, or a run and its resumption, have to compute alike."""
    found = {}
    for name, overrides in JOBS.items():
        _, _, plan = planned(load_job(overrides=list(overrides)))
        found[name] = plan.compute_digest()
        found[f"bound of {name}"] = plan.encoding.bound
    for frequencies in (2, 32, 500, 512):  # √F of a power of two: entries that are whole numbers
        found[f"waves {frequencies}"] = compute_waves_digest(40, frequencies, 1.0, 0)
    return found


def run_in(processor, *command, timeout_s=120):
    """Return what a Python command prints in the environment of an older processor."""
    path = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path, **OLDER[processor]},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return done.stdout


_PRINT_AGREED = f"""
import json, sys
sys.path.append({str(TESTS)!r})
from test_processors import agreed
print(json.dumps(agreed()))
"""


BOTH = [
    pytest.param("without AVX-512", marks=pytest.mark.heavy),
    "without AVX2",
]
"""What runs always is the older one: it rounds more things otherwise."""


@pytest.mark.parametrize("processor", BOTH)
def test_server_and_party_compute_plans_alike_whatever_their_processors(processor):
    here = agreed()
    there = json.loads(run_in(processor, "-c", _PRINT_AGREED))
    assert {name for name in here if here[name] != there[name]} == set()


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["gradients", "objective", "record", "both", "distributed"])
def test_parties_on_an_older_processor_accept_and_answer_every_round(name, ground, monkeypatch):
    for variable, value in OLDER["without AVX2"].items():
        monkeypatch.setenv(variable, value)  # for the parties: this process has its kernels
    overrides = (*JOBS[name], "parties.count=3", "run.engine=processes", "run.stage-timeout=60")
    result = process_engines.ENGINES["processes"](
        load_job(overrides=list(overrides)), out=ground.run
    )
    assert result.summary.status == "complete"
    lines = (ground.run / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["parties"]["answered"] for line in lines} == {3}


def run_tests_in(processor, *paths, timeout_s):
    options = ("-q", "--no-header", "--timeout", str(timeout_s))
    places = (path if path.startswith("-") else str(TESTS / path) for path in paths)
    run_in(processor, "-m", "pytest", *options, *places, timeout_s=timeout_s)


def test_least_squares_hold_on_an_older_processor():
    run_tests_in("without AVX2", "client/queries/test_consistency.py", "-n0", timeout_s=120)


@pytest.mark.heavy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("processor", OLDER)
def test_every_test_that_compares_numbers_holds_on_an_older_processor(processor):
    run_tests_in(processor, *COMPARED, timeout_s=3500)
