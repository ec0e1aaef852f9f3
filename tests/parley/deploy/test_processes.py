from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from parley.deploy.processes import (
    ProcessError,
    Supervisor,
    check_port,
    free_ports,
    listens,
    wait_until,
)

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


def start(supervisor, tmp_path, code, name="a process"):
    log = tmp_path / "a.log"
    return supervisor.start(name, python(code), environment=os.environ, log=log)


def test_leaving_ends_every_process_and_its_children_however_stubborn(tmp_path):
    def fail_with_a_child():
        with Supervisor() as supervisor:
            process = start(supervisor, tmp_path, STUBBORN)
            wait_until(lambda: process.log.read_text().endswith("\n"), what="a line", timeout_s=20)
            raise RuntimeError(process.log.read_text())

    with pytest.raises(RuntimeError) as failed:
        fail_with_a_child()
    wait_until(lambda: not alive(int(str(failed.value))), what="the end", timeout_s=5)


def test_a_process_that_ended_by_itself_is_reported_with_the_end_of_its_log(tmp_path):
    with Supervisor() as supervisor:
        process = start(supervisor, tmp_path, "print('first'); raise SystemExit(3)", "the node")
        with pytest.raises(
            ProcessError, match=r"the node ended with status 3; its log .*\n.*first"
        ):
            wait_until(lambda: False, what="x", timeout_s=20, check=supervisor.check)
        assert not process.running


def test_of_a_traceback_only_what_was_raised_is_shown(tmp_path):
    with Supervisor() as supervisor:
        process = start(
            supervisor, tmp_path, "def f(): raise OSError('disk full')\nf()", "the node"
        )
        process.popen.wait()
        with pytest.raises(ProcessError, match="OSError: disk full") as ended:
            process.check()
        assert "Traceback" not in str(ended.value)
        assert "line 1" not in str(ended.value)


def test_a_command_that_is_not_there_is_named(tmp_path):
    with Supervisor() as supervisor, pytest.raises(ProcessError, match="Cannot start the node"):
        supervisor.start("the node", ["/no/such"], environment={}, log=tmp_path / "x.log")


def test_a_process_that_is_restarted_keeps_its_log(tmp_path):
    with Supervisor() as supervisor:
        first = start(supervisor, tmp_path, "print('here')")
        first.popen.wait()
        second = supervisor.restart(first)
        second.popen.wait()
        assert supervisor.processes == [second]
    assert first.log.read_text().split() == ["here", "here"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_processes_end_even_when_their_launcher_is_killed(tmp_path):
    code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from parley.deploy.processes import Supervisor\n"
        "with Supervisor() as s:\n"
        "    p = s.start('x', [sys.executable, '-c', 'import time; time.sleep(60)'],\n"
        f"        environment=os.environ, log=Path({str(tmp_path)!r}) / 'x.log')\n"
        "    print(p.popen.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    launcher = subprocess.Popen(python(code), stdout=subprocess.PIPE, env=environment)
    child = int(launcher.stdout.readline())
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    wait_until(lambda: not alive(child), what="the end", timeout_s=10)


def test_no_library_hears_of_a_fork_when_a_process_starts(tmp_path):
    # gRPC's handlers of forks abort now and then in the process that is to become another.
    marker = tmp_path / "heard"
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from parley.deploy.processes import Supervisor\n"
        f"os.register_at_fork(after_in_child=Path({str(marker)!r}).touch)\n"
        "with Supervisor() as s:\n"
        "    p = s.start('x', [sys.executable, '-c', 'pass'], environment=os.environ,\n"
        f"        log=Path({str(tmp_path)!r}) / 'x.log')\n"
        "    sys.exit(p.popen.wait())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(python(code), env=environment, check=False).returncode == 0
    assert not marker.exists()


def test_free_ports_are_different_and_free():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        check_port("127.0.0.1", port)


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        listens(f"127.0.0.1:{port}")
        with pytest.raises(ProcessError, match=f"Cannot listen on 127.0.0.1:{port}"):
            check_port("127.0.0.1", port)


def test_a_server_that_is_not_there_is_named():
    (port,) = free_ports(1)
    with pytest.raises(ProcessError, match=f"Cannot reach the server at 127.0.0.1:{port}"):
        listens(f"127.0.0.1:{port}")


def test_waiting_has_a_deadline():
    began = time.monotonic()
    with pytest.raises(ProcessError, match="Waited 0 s for the impossible, in vain"):
        wait_until(lambda: False, what="the impossible", timeout_s=0.2)
    assert time.monotonic() - began < 5
