"""A run carried by Flower: SuperLink and SuperNodes on this machine, or Flower's simulation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from parley.deploy.flower.app_bundle import job_app
from parley.deploy.flower.network import (
    SuperLink,
    await_online,
    start_simulation,
    start_superlink,
    start_supernode,
)
from parley.deploy.flower.watching import follow_flower
from parley.deploy.node_keys import make_node_key
from parley.deploy.places import Place, run_authority
from parley.deploy.processes import Supervisor, free_ports
from parley.server.jobs.job import Job
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer

_RESTARTS = 3


def run_simulation(
    place: Place, supervisor: Supervisor, job: Job, observer: Observer | None
) -> RunSummary:
    """Runs a job in Flower's simulation."""
    # Ray's sockets are files, and a socket's path is 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="parley-", ignore_cleanup_errors=True) as scratch:
        place.publish(place.deployment)
        link = start_simulation(
            supervisor,
            place.network,
            environment={
                "PARLEY_SERVER": str(place.server),
                "PARLEY_RUN": str(place.run),
                "PARLEY_SIMULATED": "1",
            },
            logs=place.logs,
            scratch=Path(scratch),
        )
        check = _Watch(supervisor, link, restart=False)
        return _follow(place, link, job, observer, check, supernodes=job.parties.count)


def run_network(
    place: Place, supervisor: Supervisor, job: Job, observer: Observer | None
) -> RunSummary:
    """Runs a job with a SuperLink and one SuperNode a party."""
    link = _network(place, supervisor)
    return _follow(place, link, job, observer, _Watch(supervisor, link, restart=True))


def _follow(
    place: Place,
    link: SuperLink,
    job: Job,
    observer: Observer | None,
    check: Callable[[], None],
    *,
    supernodes: int | None = None,
) -> RunSummary:
    control = link.control()
    try:
        number = control.start(job_app(job), supernodes=supernodes)
        return follow_flower(
            place.run, job, control=control, run=number, observer=observer, check=check
        )
    finally:
        control.close()


def _network(place: Place, supervisor: Supervisor) -> SuperLink:
    """Keys for this run, a SuperLink that knows them, and a SuperNode for every party."""
    server, parties = place.server, place.deployment.parties
    server.mkdir(parents=True, exist_ok=True, mode=0o700)
    with run_authority(server, homes=place.homes):
        lines = [
            make_node_key(home / "supernode.key", comment=party.name)
            for home, party in zip(place.homes, parties, strict=True)
        ]
    port, *ports = free_ports(1 + len(parties))
    deployment = replace(
        place.deployment,
        server_address=f"127.0.0.1:{port}",
        parties=tuple(
            replace(party, node=line) for party, line in zip(parties, lines, strict=True)
        ),
    )
    place.publish(deployment)
    link = start_superlink(
        supervisor,
        server,
        port=port,
        environment={"PARLEY_RUN": str(place.run)},
        logs=place.logs,
    )
    for index, party in enumerate(parties):
        start_supernode(
            supervisor,
            place.party(index),
            name=party.name,
            server=f"127.0.0.1:{port}",
            port=ports[index],
        )
    await_online(link, [party.name for party in parties], supervisor)
    return link


class _Watch:
    """Between two looks at the run: a SuperLink that died is started again, where it was.

    A party's process that dies is a dropout, for the protocol to deal with.
    """

    def __init__(self, supervisor: Supervisor, link: SuperLink, *, restart: bool) -> None:
        self._supervisor, self._process = supervisor, link.process
        self._left = _RESTARTS if restart else 0

    def __call__(self) -> None:
        if self._process.running:
            return
        if not self._left:
            self._process.check()
        self._left -= 1
        self._process = self._supervisor.restart(self._process)
