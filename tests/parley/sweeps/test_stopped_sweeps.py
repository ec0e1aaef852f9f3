"""A sweep whose processes are killed, or that is stopped, ends cleanly."""

import multiprocessing
import os
import signal
import subprocess
import time
from functools import partial

import pytest

from parley.sweeps import sweep_runner
from parley.sweeps.sweep_runner import SweepStopped


class _Killed:
    """A task that ends the process which is given it."""

    name = "killed"

    def __reduce__(self):
        return os._exit, (9,)


def test_a_process_that_is_killed_is_said_with_what_to_do():
    with pytest.raises(SweepStopped, match="resumes it"):
        list(sweep_runner._run_tasks(iter([_Killed()]), 1))


class _Long:
    """A task that takes half a minute to be read."""

    name = "long"

    def __reduce__(self):
        return time.sleep, (30,)


def test_a_sweep_that_is_stopped_ends_its_processes_and_not_those_of_others():
    spawn = multiprocessing.get_context("spawn")
    other = spawn.Process(target=time.sleep, args=(30,))
    other.start()
    began = []

    def tasks():
        yield _Long()
        while not set(multiprocessing.active_children()) - {other}:
            time.sleep(0.05)
        began.append(time.monotonic())
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            list(sweep_runner._run_tasks(tasks(), 1))
        assert time.monotonic() - began[0] < 20
        assert multiprocessing.active_children() == [other]
    finally:
        other.kill()
        other.join()


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_comes_twice_and_to_every_process_ends_a_sweep_cleanly(tmp_path, number):
    """As `timeout`, a service manager and a terminal send it; the same command goes on."""
    (tmp_path / "sweep.toml").write_text("""
        data = { source = "synthetic", records = 2000 }
        algorithm = { rounds = 60 }
        sweep = { seeds = 20 }
    """)
    command = ["parley", "sweep", "sweep.toml", "--out", "out", "--workers", "2"]
    # Whoever starts tests in the background has Ctrl-C ignored; a terminal doesn't.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    rows = partial((tmp_path / "out" / "cells").glob, "*/row.json")
    while process.poll() is None and len(list(rows())) < 3:
        time.sleep(0.1)
    process.send_signal(number)
    if number == signal.SIGTERM:
        os.killpg(process.pid, number)
    said, _ = process.communicate(timeout=60)
    kept = len(list(rows()))
    assert process.returncode == 130
    assert 3 <= kept < 20
    assert "Traceback" not in said
    assert "of 20 runs. Repeat the command to run the rest." in said
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"20 of 20 runs ({kept} from before)" in again.stderr
