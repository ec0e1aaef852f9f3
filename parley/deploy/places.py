"""Where a run of real processes on this machine keeps what: all of it inside its run folder.

`parties/` has a folder for every party, with its log and ledger; `logs/` the processes' logs. What
carries the messages keeps its own in `network/`, which goes with its keys when the run is over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.client.contract.roster import Deployment, load_deployment, render_deployment
from parley.client.party.storage import end_sessions
from parley.deploy.pki import make_authority, make_server_certificate
from parley.deploy.processes import ProcessError
from parley.server.jobs.job import Job
from parley.server.model_file import ModelFileError, open_model
from parley.server.records.summary import RunSummary
from parley.simulations.data.experiment import load_experiment
from parley.simulations.engine.local_parties import prepare_parties
from parley.simulations.figures.local_summary import local_summary

# Of a run that is over: identities, sessions, what the server knew the party by.
_SECRETS = ("identity.key", "party.key", "party.pem")


@contextmanager
def run_authority(server: Path, *, homes: Sequence[Path]) -> Iterator[Path]:
    """An authority for one run, and the server's certificate; its key is gone afterwards.

    Gives the folder with `ca.crt` and `ca.key`; every party's has `ca.crt`.
    """
    authority_key = server / "ca.key"
    make_authority(server / "ca.crt", authority_key, name="Parley, for one run")
    make_server_certificate(
        server / "server.pem",
        server / "server.key",
        authority=server / "ca.crt",
        authority_key=authority_key,
        hosts=["127.0.0.1", "localhost"],
    )
    for home in homes:
        shutil.copy(server / "ca.crt", home)
    try:
        yield server
    finally:
        authority_key.unlink()


class Place:
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
            served,
            job=self.experiment.job,
            experiment=self.experiment,
            model=model,
            parties=parties,
        )

    @property
    def parties(self) -> Path:
        """Where the parties' folders are."""
        return self.run / "parties"

    @property
    def network(self) -> Path:
        """What carries the messages keeps its files here."""
        return self.run / "network"

    @property
    def server(self) -> Path:
        """The server's keys and its roster."""
        return self.run / "network" / "server"

    @property
    def logs(self) -> Path:
        """The processes' logs."""
        return self.run / "logs"

    def party(self, index: int) -> Path:
        """A party's folder."""
        return self.parties / f"party-{index}"

    @property
    def homes(self) -> list[Path]:
        """The parties' folders, by index."""
        return [self.party(index) for index in range(len(self.deployment.parties))]

    def publish(self, deployment: Deployment) -> None:
        """Gives the roster to the server and to every party."""
        for folder in (self.server, *self.homes):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = render_deployment(deployment)
            (folder / "deployment.toml").write_text(text, encoding="utf-8")

    def clean(self, *, finished: bool) -> None:
        """Removes the network's files and, of a run that is over, every secret of its parties.

        A run that was interrupted keeps its parties' identities and their last contributions: it
        can be resumed. It keeps no session.
        """
        shutil.rmtree(self.network, ignore_errors=True)
        for folder in self.parties.glob("party-*"):
            for name in _SECRETS if finished else _SECRETS[1:]:
                (folder / name).unlink(missing_ok=True)
            if finished:
                shutil.rmtree(folder / "state", ignore_errors=True)
            else:
                # A run that goes on joins its parties anew: these secrets are nobody's any more.
                end_sessions(folder)

    def model(self) -> dict[str, Any]:
        """The arrays that the run left.

        Raises:
            ProcessError: none.
        """
        try:
            return dict(open_model(self.run).tensors)
        except ModelFileError as error:
            raise ProcessError(f"The run ended without its model: {error}.") from error
