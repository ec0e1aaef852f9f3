"""Runs that end the process of a real server: by an exit without a word, and by a fault."""

from __future__ import annotations

import signal

import pytest

from parley.deploy.processes import wait_until
from parley.deploy.stream.queue import Queue
from parley.server.jobs.file import load_job, render_job

pytestmark = pytest.mark.timeout(600)

DEADLY = {"exit": "os._exit(7)", "fault": "os.kill(os.getpid(), 11)"}
ENDS = (7, -signal.SIGSEGV)


@pytest.mark.heavy  # three starts of a real server; the short form is in test_hostile_jobs.py
def test_a_run_that_kills_its_server_is_set_aside_at_the_second_start_and_the_queue_goes_on(
    ground, parley, consortium, tmp_path
):
    for name, text in DEADLY.items():
        (tmp_path / f"{name}.py").write_text(f"import os\n\ndef f(z, y):\n    {text}\n")
    deadly = [
        load_job(
            tmp_path / "job.toml",
            overrides=["model.kind=own-loss", f"model.loss={tmp_path / name}.py:f"],
        )
        for name in DEADLY
    ]
    server = parley.serve(consortium)
    parley.everybody(consortium, server)
    queue = Queue(consortium / "server" / "runs")  # not by the port, which ends with the first run
    names = [
        queue.submit(render_job(job), by="server", own_files=True)
        for job in (*deadly, load_job(tmp_path / "job.toml"))
    ]
    for status in ENDS:
        assert parley.running[server][0].wait(120) == status
        server = parley.serve(consortium)
    shown = []

    def complete():
        shown[:] = parley("status", consortium).splitlines()
        return f"{names[2]}: complete" in shown

    wait_until(complete, what="the run that waited", timeout_s=120)
    for name in names[:2]:
        at = shown.index(f"{name}: set-aside")
        assert "the server's process ended while it ran this" in shown[at + 1]
        assert f"--resume {name}" in shown[at + 1]
    last = parley.running[server][0]
    last.send_signal(signal.SIGTERM)
    assert last.wait(60) == 130
