"""Processes that are supervised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from parley.deploy.child_processes import Supervisor
from parley.deploy.process_errors import ProcessError, wait_until

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
        said = r"ended with status 1. The end of its log .*\n  first\n  OSError: disk full$"
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
        "from parley.deploy.child_processes import Supervisor\n"
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
