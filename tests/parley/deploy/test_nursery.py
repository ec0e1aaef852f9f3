"""Processes that are forked with their imports done."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from parley.deploy.nursery import Nursery
from parley.deploy.processes import ProcessError, Supervisor, wait_until

CHILD = """
import os, sys, time

def main():
    print(os.getpid(), *sys.argv[1:], flush=True)
    if sys.argv[1] == "stay":
        time.sleep(600)
    sys.exit(int(sys.argv[2]))
"""


# Imported before the forks, as the parties' modules are.
DRAWING = """
import os, random
from cryptography.hazmat.primitives.asymmetric import ec
from parley.privacy.sampling.stream import NoiseStream

MADE_BEFORE = NoiseStream.from_entropy()
ec.generate_private_key(ec.SECP256R1())

def main():
    held = sorted(int(number) for number in os.listdir("/proc/self/fd"))
    key = ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value
    print(held, random.random(), key, os.urandom(8).hex())
    print(NoiseStream.from_entropy().words(1))
    try:
        print("the same noise:", MADE_BEFORE.words(1))
    except RuntimeError as error:
        print(error, flush=True)
"""


@pytest.fixture
def nursery(tmp_path, monkeypatch):
    (tmp_path / "child_of_a_nursery.py").write_text(CHILD)
    (tmp_path / "drawing.py").write_text(DRAWING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Supervisor() as supervisor:
        yield supervisor, Nursery(supervisor, ("json", "drawing"), log=tmp_path / "nursery.log")


def started(nursery, log, *arguments):
    process = nursery.start("a child", ("child_of_a_nursery", *arguments), log=log)
    wait_until(lambda: log.exists() and log.read_text(), what="its first line", timeout_s=60)
    return process


def test_each_has_its_own_log_and_end_and_all_end_with_their_supervisor(nursery, tmp_path):
    supervisor, own = nursery
    ended = [started(own, tmp_path / f"{code}.log", "go", str(code)) for code in (0, 3)]
    assert [process.popen.wait(60) for process in ended] == [0, 3]
    assert ended[1].tail().endswith("go 3")
    with pytest.raises(ProcessError, match="a child ended with status 3"):
        ended[1].check()
    again = supervisor.restart(ended[1])  # by itself, whatever became of the nursery
    assert again.popen.wait(60) is not None
    stays, killed = (started(own, tmp_path / f"{name}.log", "stay") for name in ("a", "b"))
    assert Path(f"/proc/{stays.popen.pid}/comm").read_text() == "child_of_a_nurs\n"
    killed.popen.kill()
    assert killed.popen.wait(60) == -signal.SIGKILL
    assert stays.running
    supervisor.end()
    assert not stays.running
    with pytest.raises(ProcessLookupError):
        os.kill(stays.popen.pid, 0)


def test_processes_end_with_a_nursery_that_is_killed(nursery, tmp_path):
    supervisor, own = nursery
    stays = started(own, tmp_path / "stays.log", "stay")
    supervisor.processes[0].popen.kill()
    wait_until(lambda: not stays.running, what="its end", timeout_s=60)
    with pytest.raises(ProcessError, match="nursery"):
        own.start("a child", ("child_of_a_nursery", "go", "0"), log=tmp_path / "late.log")


def test_what_is_forked_shares_no_randomness_and_no_open_file(nursery, tmp_path):
    logs = [tmp_path / f"{number}.log" for number in range(2)]
    for log in logs:
        assert nursery[1].start("a child", ("drawing",), log=log).popen.wait(60) == 0
    first, second = (log.read_text().splitlines() for log in logs)
    for lines in (first, second):
        held = lines[0].partition("]")[0].strip("[").split(", ")
        assert held[:3] == ["0", "1", "2"]
        assert len(held) == 4  # the listing's own
        assert "both would draw the same noise" in lines[2]
    drawn = [[*lines[0].partition("]")[2].split(), lines[1]] for lines in (first, second)]
    assert all(one != other for one, other in zip(*drawn, strict=True))
