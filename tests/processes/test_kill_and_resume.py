"""A run killed with SIGKILL resumes to the same bits and pays for nothing twice."""

import signal
import subprocess
import sys
import time

import numpy as np
from safetensors.numpy import load_file

from parley.privacy.ledger.ledger import Ledger

ROUNDS = 60
OWN = (
    *(f"algorithm.rounds={ROUNDS}", "secure-aggregation.masked-check=false"),
    *("parties.count=40", "data.source=synthetic"),
)
JOB = ["--seed", "7", *(word for each in OWN for word in ("--set", each))]


def start(tmp_path, *arguments):
    command = [sys.executable, "-m", "parley", "run", "-q", *arguments]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)


def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    """Killed after its first round, and again after ten."""
    assert start(tmp_path, "--out", "whole", *JOB).wait(200) == 0
    lines = tmp_path / "killed" / "rounds.jsonl"
    process = start(tmp_path, "--out", "killed", *JOB)
    for least in (1, 10):
        while process.poll() is None and not (
            lines.exists() and len(lines.open().readlines()) >= least
        ):
            time.sleep(0.001)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process = start(tmp_path, "--resume", "killed")
    assert process.wait(200) == 0
    theta = load_file(tmp_path / "whole" / "model.safetensors")["theta"]
    again = load_file(tmp_path / "killed" / "model.safetensors")["theta"]
    assert np.array_equal(theta, again)
    with (
        Ledger.open(tmp_path / "whole" / "ledger.sqlite", read_only=True) as one,
        Ledger.open(tmp_path / "killed" / "ledger.sqlite", read_only=True) as two,
    ):
        assert two.verify() == []
        assert len(two.list_entries()) == ROUNDS
        assert [each.spent for each in one.list_accounts()] == [
            each.spent for each in two.list_accounts()
        ]
