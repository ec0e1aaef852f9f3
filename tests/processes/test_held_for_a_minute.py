"""A server's process whose ports other processes hold 2,000 connections to, for a minute."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from held_connections import answered, held_connections

from parley.deploy.process_errors import wait_until

_COUNT = 2000


@pytest.mark.heavy
@pytest.mark.timeout(400)
@pytest.mark.parametrize("held", ["parties", "monitor"])
def test_two_thousand_connections_for_a_minute_end_no_server_and_no_run(parley, consortium, held):
    """It may have 1,400 files open, and its runs go on."""
    log = (parley.root / "server.out").open("w+")
    command = parley.command("server", consortium / "server", "--monitor", "0", "--log-json")
    limited = subprocess.Popen(
        ["prlimit", "--nofile=1400", *command], stdout=log, stderr=log, env=parley.environment()
    )
    parley.running.append((limited, log))
    said = parley.root / "server.out"
    wait_until(lambda: '"monitored"' in said.read_text(), what="a monitor", timeout_s=120)
    events = [json.loads(line) for line in said.read_text().splitlines() if line[:1] == "{"]
    by_name = {event["event"]: event for event in events}
    monitor = int(by_name["monitored"]["at"].rpartition(":")[2])
    for name in ("north", "south", "east"):
        parley.start("party", consortium / "parties" / name)
    wait_until(lambda: parley("status", consortium).count("online") == 3, what="all", timeout_s=120)
    port = by_name["listening"]["port"] if held == "parties" else monitor
    words = ("--set", "algorithm.rounds=60", "--json", "-q")
    run = parley.start("submit", consortium.parent / "job.toml", "--to", consortium, *words)
    wait_until(
        lambda: json.loads(answered(monitor, "/healthz"))["round"] > 0, what="a round", timeout_s=60
    )
    ends = time.monotonic() + 60
    with held_connections(port, count=_COUNT, seconds=90, again=True):
        while time.monotonic() < ends:
            assert json.loads(answered(monitor, "/healthz"))["online"] == 3
            time.sleep(0.5)
    assert parley.running[run][0].wait(120) == 0
    assert json.loads(parley.said(run))["status"] == "complete"
    assert limited.poll() is None
