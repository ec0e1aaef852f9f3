"""Processes that are supervised, and those that are forked with their imports done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parley.deploy.nursery import Nursery
from parley.deploy.processes import ProcessError, Supervisor, wait_until

STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(60)\n"
)


def python(code):
    return [sys.executable, "-P", "-c", code]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def start(supervisor, tmp_path, code):
    log = tmp_path / "a.log"
    return supervisor.start("the node", python(code), environment=os.environ, log=log)


def test_leaving_ends_every_process_and_its_children_however_stubborn(tmp_path):
    def fail_with_a_child():
        with Supervisor() as supervisor:
            process = start(supervisor, tmp_path, STUBBORN)
            wait_until(lambda: process.log.read_text().endswith("\n"), what="a line", timeout_s=20)
            raise RuntimeError(process.log.read_text())

    with pytest.raises(RuntimeError) as failed:
        fail_with_a_child()
    wait_until(lambda: not alive(int(str(failed.value))), what="the end", timeout_s=5)


def test_a_process_that_ended_by_itself_is_reported_with_what_was_raised_in_it(tmp_path):
    with Supervisor() as supervisor:
        code = "def f(): raise OSError('disk full')\nprint('first', flush=True)\nf()"
        process = start(supervisor, tmp_path, code)
        said = r"the node ended with status 1; its log .*\n  first\n  OSError: disk full$"
        with pytest.raises(ProcessError, match=said):
            wait_until(lambda: False, what="x", timeout_s=20, check=supervisor.check)
        assert not process.running
        with pytest.raises(ProcessError, match="Cannot start a stranger"):
            supervisor.start("a stranger", ["/no/such"], environment={}, log=tmp_path / "x.log")


def test_a_process_that_is_restarted_keeps_its_log(tmp_path):
    with Supervisor() as supervisor:
        first = start(supervisor, tmp_path, "print('here')")
        first.popen.wait()
        second = supervisor.restart(first)
        second.popen.wait()
        assert supervisor.processes == [second]
    assert first.log.read_text().split() == ["here", "here"]


def launcher(tmp_path, child, then):
    """A process that supervises another, as `s` and `p`; no handler of forks is heard in it."""
    code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from parley.deploy.processes import Supervisor\n"
        f"os.register_at_fork(after_in_child=Path({str(tmp_path / 'heard')!r}).touch)\n"
        "with Supervisor() as s:\n"
        f"    p = s.start('x', [sys.executable, '-c', {child!r}], environment=os.environ,\n"
        f"        log=Path({str(tmp_path)!r}) / 'x.log')\n"
        f"    {then}\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(python(code), stdout=subprocess.PIPE, env=environment)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_processes_end_even_when_their_launcher_is_killed(tmp_path):
    then = "print(p.popen.pid, flush=True); time.sleep(60)"
    started = launcher(tmp_path, "import time; time.sleep(60)", then)
    child = int(started.stdout.readline())
    started.send_signal(signal.SIGKILL)
    started.wait()
    wait_until(lambda: not alive(child), what="the end", timeout_s=10)


def test_no_library_hears_of_a_fork_when_a_process_starts(tmp_path):
    # gRPC's handlers of forks abort now and then in the process that is to become another.
    assert launcher(tmp_path, "pass", "sys.exit(p.popen.wait())").wait() == 0
    assert not (tmp_path / "heard").exists()


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
