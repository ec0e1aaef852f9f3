"""A run carried by streams: one server's process and one process a party, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from parley.deploy.follow import follow
from parley.deploy.nursery import Nursery
from parley.deploy.peers import certify_party
from parley.deploy.pki import client_request
from parley.deploy.places import Place, run_authority
from parley.deploy.processes import Process, ProcessError, Supervisor, free_ports, wait_until
from parley.server.jobs.job import Job
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer

_SERVER, _PARTY = "parley.deploy.stream.run_process", "parley.deploy.stream.party"
_RESTARTS = 3
_LAST_S = 3.0


def run_stream(
    run: Path, supervisor: Supervisor
) -> Callable[[Place, Job, Observer | None], RunSummary]:
    """Starts at once what the processes of a run in `run` need; gives what runs it to its end.

    That raises:
        ProcessError: a process ended before the first round, or the server's again and again.
    """
    nursery = Nursery(supervisor, (_SERVER, _PARTY), log=run / "logs" / "nursery.log")

    def launch(place: Place, job: Job, observer: Observer | None) -> RunSummary:
        return _run(place, supervisor, nursery, job, observer)

    return launch


def _run(
    place: Place,
    supervisor: Supervisor,
    nursery: Nursery,
    job: Job,
    observer: Observer | None,
) -> RunSummary:
    """Keys for this run, its processes, and the run to its end."""
    parties = place.deployment.parties
    place.server.mkdir(parents=True, exist_ok=True, mode=0o700)
    with run_authority(place.server, homes=place.homes) as authority:
        for home, party in zip(place.homes, parties, strict=True):
            asked = client_request(home / "party.key")
            (home / "party.pem").write_bytes(certify_party(asked, party, authority=authority))
    (port,) = free_ports(1)
    place.publish(replace(place.deployment, server_address=f"127.0.0.1:{port}"))
    server = nursery.start(
        "the server",
        (_SERVER, str(place.server), str(place.run)),
        log=place.logs / "server.log",
    )
    for home, party in zip(place.homes, parties, strict=True):
        nursery.start(party.name, (_PARTY, str(home.resolve())), log=home / "process.log")
    import parley.report.page  # noqa: F401, PLC0415 - start-up: read while the processes come up

    watch = _Watch(place.run, supervisor, server)
    summary = follow(place.run, ended=watch, observer=observer, every=1)
    with suppress(ProcessError):  # it has no more to say
        wait_until(lambda: not watch.server.running, what="its end", timeout_s=_LAST_S, poll_s=0.01)
    nursery.end()
    return summary


class _Watch:
    """Between two looks at the run: a server that died is started again, where it was.

    A party's process that dies is a dropout, for the protocol to deal with; before the run has
    begun it is said.
    """

    def __init__(self, run: Path, supervisor: Supervisor, server: Process) -> None:
        self._run, self._supervisor, self.server = run, supervisor, server
        self._left = _RESTARTS

    def __call__(self) -> str | None:
        if any((self._run / name).exists() for name in ("summary.json", "error.json")):
            return "finished"
        if not (self._run / "run-id").exists():
            self._supervisor.check()
        if not self.server.running:
            if not self._left:
                self.server.check()
            self._left -= 1
            self.server = self._supervisor.restart(self.server)
        return None
