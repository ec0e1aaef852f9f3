"""Runs that end the process of a real server: by an exit without a word, and by a fault."""

from __future__ import annotations

import signal

import pytest
from commands import NAMES

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
    def said(server, words):
        wait_until(lambda: words in parley.said(server), what=words, timeout_s=120)
        return parley.running[server][0]

    for name, text in DEADLY.items():
        (tmp_path / f"{name}.py").write_text(f"import os\n\ndef f(z, y):\n    {text}\n")
    jobs = [
        load_job(
            tmp_path / "job.toml",
            overrides=["model.kind=own-loss", f"model.loss={tmp_path / name}.py:f"],
        )
        for name in DEADLY
    ]
    server = parley.start("server", consortium / "server")
    said(server, "Listening on")
    for name in NAMES:
        parley.start("party", consortium / "parties" / name)
    first = said(server, "(3 of 3)")
    queue = Queue(consortium / "server" / "runs")  # not by the port, which ends with the first run
    names = [
        queue.submit(render_job(job), by="server", own_files=True)
        for job in (*jobs, load_job(tmp_path / "job.toml"))
    ]
    assert first.wait(120) == ENDS[0]
    second = said(parley.start("server", consortium / "server"), "Listening on")
    assert second.wait(120) == ENDS[1]
    last = said(parley.start("server", consortium / "server"), "Listening on")
    shown = []

    def complete():
        shown[:] = parley("status", consortium).splitlines()
        return f"{names[2]}: complete" in shown

    wait_until(complete, what="the run that waited", timeout_s=120)
    for name in names[:2]:
        at = shown.index(f"{name}: set-aside")
        assert "the server's process ended while it ran this" in shown[at + 1]
        assert f"--resume {name}" in shown[at + 1]
    last.send_signal(signal.SIGTERM)
    assert last.wait(60) == 130
