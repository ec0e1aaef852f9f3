"""A run killed with SIGKILL at any point resumes to the same bits and pays for nothing twice."""

import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from parley.privacy.ledger.ledger import Ledger

ROUNDS = 60


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "parley", "run", "-q", *arguments],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def job_of(rounds, *overrides):
    own = (f"algorithm.rounds={rounds}", "secure-aggregation.masked-check=false", *overrides)
    return ["--seed", "7", *(word for each in own for word in ("--set", each))]


BOTH_ROUNDS = 12
JOB = job_of(ROUNDS, "parties.count=40", "data.source=synthetic")
BOTH = job_of(
    BOTH_ROUNDS,
    *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[4]"),
    *("privacy.unit=both", "privacy.party-epsilon=6"),
    *("dp-sgd.sampling-rate=0.25", "dp-sgd.local-steps=2"),
)


def killed_and_resumed(tmp_path, name, rng, whole_s, job):
    """Kills the run again and again at random moments until it ends."""
    kills = 0
    process = start(tmp_path, "--out", name, *job)
    while True:
        try:
            # From before the folder exists to well into the rounds, on this machine as it is.
            _, error = process.communicate(
                timeout=rng.uniform(0.3, 1.3 if kills else 0.8) * whole_s
            )
            assert process.returncode == 0, error
            if kills:
                return
            shutil.rmtree(tmp_path / name)  # this machine had less to do than before: once more
            process = start(tmp_path, "--out", name, *job)
            continue
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
        if kills > 40:
            pytest.fail("the run makes no progress between kills")
        if not (tmp_path / name / "run-id").exists():  # killed before its ledger was registered
            for file in (tmp_path / name).glob("*"):
                file.unlink()
            process = start(tmp_path, "--out", name, *job)
        else:
            process = start(tmp_path, "--resume", name)


def killed_between_rounds(tmp_path, name, job):
    """Kills the run after its first round, and again after ten."""
    lines = tmp_path / name / "rounds.jsonl"
    process = start(tmp_path, "--out", name, *job)
    for least in (1, 10):
        while process.poll() is None and not (
            lines.exists() and len(lines.open().readlines()) >= least
        ):
            time.sleep(0.001)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process = start(tmp_path, "--resume", name)
    assert process.wait(200) == 0


def check(tmp_path, seed=None, job=JOB, entries=ROUNDS):
    began = time.monotonic()
    assert start(tmp_path, "--out", "whole", *job).wait(200) == 0
    whole_s = time.monotonic() - began
    if seed is None:
        killed_between_rounds(tmp_path, "killed", job)
    else:
        killed_and_resumed(tmp_path, "killed", random.Random(seed), whole_s, job)
    theta = load_file(tmp_path / "whole" / "model.safetensors")["theta"]
    again = load_file(tmp_path / "killed" / "model.safetensors")["theta"]
    assert np.array_equal(theta, again)
    with (
        Ledger.open(tmp_path / "whole" / "ledger.sqlite", read_only=True) as one,
        Ledger.open(tmp_path / "killed" / "ledger.sqlite", read_only=True) as two,
    ):
        assert two.verify() == []
        assert len(two.entries()) == entries
        assert [each.spent for each in one.totals()] == [each.spent for each in two.totals()]


def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    check(tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1, 8))
def test_runs_killed_at_many_points_resume_to_the_same_bits(tmp_path, seed):
    check(tmp_path, seed)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(8, 11))
def test_a_killed_run_with_two_budgets_resumes_and_pays_for_nothing_twice(tmp_path, seed):
    check(tmp_path, seed, BOTH, entries=2 * BOTH_ROUNDS)
