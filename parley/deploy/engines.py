"""The engines that are real processes: `parley run --engine flower` and `--engine processes`.

Both make the usual run folder and a folder for every party in it (`parties/`), let Flower run the
installed apps, follow the run folder, and end with everything ended. What Flower keeps of its own
is in `flower/` inside the run folder, and goes with its keys when the run is over; the processes'
logs stay in `logs/`, every party's log and ledger in `parties/`.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.numpy import load_file

from parley.client.contract.roster import load_deployment, render_deployment
from parley.client.party.storage import end_sessions
from parley.deploy.app_bundle import job_app
from parley.deploy.follow import STALE, follow
from parley.deploy.network import (
    SuperLink,
    await_online,
    start_simulation,
    start_superlink,
    start_supernode,
)
from parley.deploy.pki import make_authority, make_node_key, make_server_certificate
from parley.deploy.processes import ProcessError, Supervisor, free_ports
from parley.errors import exit_status
from parley.server.jobs.job import Job, JobError
from parley.server.records.run import Run
from parley.server.records.run_folder import RunFolder, anchored
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer
from parley.simulations.data.experiment import load_experiment
from parley.simulations.engine.local_parties import prepare_parties
from parley.simulations.figures.local_summary import local_summary

if TYPE_CHECKING:
    from parley.client.contract.roster import Deployment

__all__ = ["ENGINES", "run_flower", "run_processes"]

_RESTARTS = 3
# Of a run that is over: identities, sessions, what Flower knew the node by.
_SECRETS = ("identity.key", "supernode.key", "supernode.pub", "executor.secret")


def run_flower(
    job: Job | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
) -> Run:
    """Runs a job in Flower's simulation runtime: every party a node, served by Ray workers.

    Raises:
        JobError: Ray is not installed; and what `parley.simulations.engine.fast.simulate` raises.
        ProcessError: Flower did not start, or lost the run.
    """
    if importlib.util.find_spec("ray") is None:
        raise JobError(
            "The flower engine needs Ray, which is not installed. Add it with: "
            'pip install "parley[ray]"'
        )

    def start(place: _Place, supervisor: Supervisor) -> SuperLink:
        _publish(place.deployment, [place.server / "deployment.toml"])
        environment = {
            "PARLEY_SERVER": str(place.server),
            "PARLEY_RUN": str(place.run),
            "PARLEY_SIMULATED": "1",
        }
        return start_simulation(
            supervisor,
            place.flower,
            environment=environment,
            logs=place.logs,
            scratch=Path(scratch),
        )

    # Ray's sockets are files, and a socket's path is 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="parley-", ignore_cleanup_errors=True) as scratch:
        return _run(job, "flower", start, out=out, resume=resume, observer=observer)


def run_processes(
    job: Job | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
) -> Run:
    """Runs a job as a SuperLink and one SuperNode a party, on this machine, with TLS and keys.

    Raises:
        ProcessError: a process did not start, or ended by itself; and what
            `parley.simulations.engine.fast.simulate` raises.
    """
    return _run(job, "processes", _network, out=out, resume=resume, observer=observer)


ENGINES: dict[str, Callable[..., Run]] = {
    "flower": run_flower,
    "processes": run_processes,
}
"""Engines beside the fast one, by the name that --engine takes."""


class _Place:
    """Where a run keeps what: all of it inside its run folder."""

    def __init__(self, *, run: Path) -> None:
        self.run = run

    def prepare(self, job: Job) -> None:
        """Makes the parties' folders, or finds those of the run that is resumed."""

        self.experiment = load_experiment(job)
        known = self.parties / "deployment.toml"
        self.deployment: Deployment = (
            load_deployment(known)
            if known.exists()
            else prepare_parties(job, self.parties, experiment=self.experiment)
        )

    def summary(self, served: RunSummary, *, job: Job, model: dict[str, Any]) -> RunSummary:
        """The server's summary, with the figures that only whoever holds all data may know."""

        parties = [self.party(index) for index in range(len(self.deployment.parties))]
        return local_summary(
            served, job=job, experiment=self.experiment, model=model, parties=parties
        )

    @property
    def parties(self) -> Path:
        return self.run / "parties"

    @property
    def flower(self) -> Path:
        return self.run / "flower"

    @property
    def server(self) -> Path:
        return self.run / "flower" / "server"

    @property
    def logs(self) -> Path:
        return self.run / "logs"

    def party(self, index: int) -> Path:
        return self.parties / f"party-{index}"


def _run(
    job: Job | None,
    engine: str,
    start: Callable[[_Place, Supervisor], SuperLink],
    *,
    out: Path | None,
    resume: Path | None,
    observer: Observer | None,
) -> Run:
    if resume is not None:
        folder, job = RunFolder.open(resume)
    elif job is None:
        raise JobError("Expected a job or a run to resume, got neither.")
    else:
        job = anchored(job)  # other processes start elsewhere
        folder = RunFolder.create(job, out)
    run = folder.path.resolve()
    for name in STALE:
        (run / name).unlink(missing_ok=True)
    simulated = engine == "flower"
    place = _Place(run=run)
    finished = False
    try:
        place.prepare(job)
        with Supervisor() as supervisor:
            link = start(place, supervisor)
            control = link.control()
            try:
                number = control.start(
                    job_app(job), supernodes=job.parties.count if simulated else None
                )
                summary = follow(
                    run,
                    job,
                    control=control,
                    run=number,
                    observer=observer,
                    check=_Watch(supervisor, link, restart=not simulated),
                )
            finally:
                control.close()
        finished = True
    except Exception as error:
        # As in the fast engine: a job that cannot run leaves nothing behind.
        if exit_status(error) in {2, 3} and not (run / "run-id").exists():
            shutil.rmtree(run, ignore_errors=True)
        raise
    finally:
        _clean(place, finished=finished)
    model = _model(run)
    summary = place.summary(summary, job=job, model=model)
    folder.write_summary(summary)
    return Run(summary=summary, folder=folder.path, theta=model["theta"])


def _publish(deployment: Deployment, paths: list[Path]) -> None:

    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_deployment(deployment), encoding="utf-8")


def _network(place: _Place, supervisor: Supervisor) -> SuperLink:
    """Keys for this run, a SuperLink that knows them, and a SuperNode for every party."""
    server, parties = place.server, place.deployment.parties
    server.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key = server / "ca.key"
    make_authority(server / "ca.crt", authority_key, name="Parley, for one run")
    make_server_certificate(
        server / "server.pem",
        server / "server.key",
        authority=server / "ca.crt",
        authority_key=authority_key,
        hosts=["127.0.0.1", "localhost"],
    )
    authority_key.unlink()  # nothing more is signed in this run
    lines = []
    for index, party in enumerate(parties):
        shutil.copy(server / "ca.crt", place.party(index))
        lines.append(make_node_key(place.party(index) / "supernode.key", comment=party.name))
    port, *ports = free_ports(1 + len(parties))
    deployment = replace(
        place.deployment,
        server_address=f"127.0.0.1:{port}",
        parties=tuple(
            replace(party, node=line) for party, line in zip(parties, lines, strict=True)
        ),
    )
    folders = [place.party(index) for index in range(len(parties))]
    _publish(deployment, [folder / "deployment.toml" for folder in [server, *folders]])
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


def _clean(place: _Place, *, finished: bool) -> None:
    """Removes Flower's files and, of a run that is over, every secret of its parties.

    A run that was interrupted keeps its parties' identities and their last contributions: it can
    be resumed. It keeps no session.
    """
    shutil.rmtree(place.flower, ignore_errors=True)
    for folder in place.parties.glob("party-*"):
        shutil.rmtree(folder / "flower", ignore_errors=True)
        for name in _SECRETS if finished else _SECRETS[1:]:
            (folder / name).unlink(missing_ok=True)
        if finished:
            shutil.rmtree(folder / "state", ignore_errors=True)
        else:
            # A run that goes on joins its parties anew: these secrets are nobody's any more.
            end_sessions(folder)


def _model(run: Path) -> dict[str, Any]:

    try:
        return dict(load_file(run / "model.safetensors"))
    except OSError as error:
        raise ProcessError(f"The run ended without its model: {error}.") from error
