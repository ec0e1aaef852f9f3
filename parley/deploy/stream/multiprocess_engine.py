"""Run a job over streams on this machine: one server process and one process per party."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from parley.client.contract.roster import load_deployment, render_deployment
from parley.deploy.authorization import certify_party
from parley.deploy.certificate_making import (
    make_authority,
    make_client_request,
    make_server_certificate,
)
from parley.deploy.child_processes import Process, Supervisor, build_environment, find_free_ports
from parley.deploy.process_errors import ProcessError, wait_until
from parley.deploy.run_watcher import follow
from parley.safe_io.file_writing import write_file
from parley.server.jobs.job import Job
from parley.server.records.run_summary import RunSummary
from parley.server.rounds.run_observer import Observer
from parley.simulations.engine.party_folders import party_folders, write_roster

_SERVER, _PARTY = "parley.deploy.stream.single_run_server", "parley.deploy.stream.party_client"
_RESTARTS = 3
_LAST_S = 3.0


def run_stream(
    run: Path, supervisor: Supervisor, _job: Job, observer: Observer | None
) -> RunSummary:
    """Make the keys of a run, start its processes and follow it to its end.

    Raises:
        ProcessError: a process ended before the first round, or the server's ended repeatedly.
    """

    def start(name: str, module: str, *arguments: Path, log: Path) -> Process:
        command = [sys.executable, "-P", "-m", module, *map(str, arguments)]
        return supervisor.start(name, command, environment=build_environment(), log=log)

    server_home = run / "network" / "server"
    homes = _make_keys(run / "parties", server_home)
    server = start("the server", _SERVER, server_home, run, log=run / "logs" / "server.log")
    for home in homes:
        start(home.name, _PARTY, home, log=home / "process.log")
    import parley.presentation.run_page  # noqa: F401, PLC0415 - start-up: read while the processes come up

    left = _RESTARTS

    def ended() -> str | None:
        """Return "finished" at the end of the run; restart a server process that died.

        A party that dies is a dropout for the protocol. Before the run has begun, it is an error.
        """
        nonlocal server, left
        if any((run / name).exists() for name in ("summary.json", "error.json")):
            return "finished"
        if not (run / "run-id").exists():
            supervisor.check()
        if not server.running:
            if not left:
                server.check()
            left -= 1
            server = supervisor.restart(server)
        return None

    summary = follow(run, ended=ended, observer=observer, every=1)
    with suppress(ProcessError):  # the run is over, so this does not matter
        wait_until(lambda: not server.running, what="its end", timeout_s=_LAST_S, poll_s=0.01)
    return summary


def _make_keys(parties: Path, server: Path) -> list[Path]:
    """Create keys, certificates and roster of one run, and delete the authority's key."""
    deployment = load_deployment(parties / "deployment.toml")
    homes = party_folders(parties, len(deployment.parties))
    server.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_authority(server, name="Parley, for one run")
    try:
        make_server_certificate(server, authority=server, hosts=["127.0.0.1", "localhost"])
        for home, party in zip(homes, deployment.parties, strict=True):
            write_file(home / "ca.crt", (server / "ca.crt").read_bytes())
            asked = make_client_request(home / "party.key")
            write_file(home / "party.pem", certify_party(asked, party, authority=server))
    finally:
        (server / "ca.key").unlink()
    (port,) = find_free_ports(1)
    deployment = replace(deployment, server_address=f"127.0.0.1:{port}")
    write_roster(deployment, parties)
    write_file(server / "deployment.toml", render_deployment(deployment))
    return homes
