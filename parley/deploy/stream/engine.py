"""A run carried by streams: one server's process and one process a party, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from parley.client.contract.file_writing import write_file
from parley.client.contract.roster import load_deployment, render_deployment
from parley.deploy.follow import follow
from parley.deploy.nursery import Nursery
from parley.deploy.peers import certify_party
from parley.deploy.pki import client_request, make_authority, make_server_certificate
from parley.deploy.processes import ProcessError, Supervisor, free_ports, wait_until
from parley.server.jobs.job import Job
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer
from parley.simulations.engine.local_parties import party_folders, write_roster

_SERVER, _PARTY = "parley.deploy.stream.run_process", "parley.deploy.stream.party"
_RESTARTS = 3
_LAST_S = 3.0


def run_stream(run: Path, supervisor: Supervisor) -> Callable[[Job, Observer | None], RunSummary]:
    """Starts at once what the processes of a run in `run` need; gives what runs it to its end.

    That raises ProcessError where one ended before a round, or the server's again and again.
    """
    nursery = Nursery(supervisor, (_SERVER, _PARTY), log=run / "logs" / "nursery.log")
    return partial(_run, run, supervisor, nursery)


def _run(
    run: Path, supervisor: Supervisor, nursery: Nursery, job: Job, observer: Observer | None
) -> RunSummary:
    """Keys for this run, its processes, and the run to its end."""
    server_home = run / "network" / "server"
    homes = _keys(run / "parties", server_home)
    server = nursery.start(
        "the server", (_SERVER, str(server_home), str(run)), log=run / "logs" / "server.log"
    )
    for home in homes:
        nursery.start(home.name, (_PARTY, str(home)), log=home / "process.log")
    import parley.report.page  # noqa: F401, PLC0415 - start-up: read while the processes come up

    left = _RESTARTS

    def ended() -> str | None:
        """A server that died is started again, where it was.

        A party that dies is a dropout, for the protocol; before the run has begun it is said.
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
    with suppress(ProcessError):  # it has no more to say
        wait_until(lambda: not server.running, what="its end", timeout_s=_LAST_S, poll_s=0.01)
    nursery.end()
    return summary


def _keys(parties: Path, server: Path) -> list[Path]:
    """Keys, certificates and roster of one run; the authority's key is gone then."""
    deployment = load_deployment(parties / "deployment.toml")
    homes = party_folders(parties, len(deployment.parties))
    server.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_authority(server, name="Parley, for one run")
    try:
        make_server_certificate(server, authority=server, hosts=["127.0.0.1", "localhost"])
        for home, party in zip(homes, deployment.parties, strict=True):
            write_file(home / "ca.crt", (server / "ca.crt").read_bytes())
            asked = client_request(home / "party.key")
            write_file(home / "party.pem", certify_party(asked, party, authority=server))
    finally:
        (server / "ca.key").unlink()
    (port,) = free_ports(1)
    deployment = replace(deployment, server_address=f"127.0.0.1:{port}")
    write_roster(deployment, parties)
    write_file(server / "deployment.toml", render_deployment(deployment))
    return homes
