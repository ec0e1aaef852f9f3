"""Run the coordinator as a Flower ServerApp, with Flower's Grid as a transport.

The server's work is in `parley.server.rounds.run_coordinator`. This file reads the job from
Flower's run config, finds the run's folder, carries frames, and writes the error that ended the
run where the launcher finds it.

Folders come from environment variables, never from the submitter. `PARLEY_SERVER` is a deployment's
folder, and `PARLEY_RUN` a run's folder from `parley run --engine flower`. With neither, it is `flwr
run` on an unprepared simulation. Without `PARLEY_RUN` the run config is the job, which may name
neither files nor code.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from parley.client.contract.message_frames import WireError
from parley.client.contract.roster import load_deployment
from parley.client.flower_client_app import build_content, read_frame
from parley.safe_io.path_names import is_plain_name
from parley.server.jobs.flower_run_config import from_run_config
from parley.server.jobs.machine_references import check_submission
from parley.server.records.run_folder import RunFolder, RunFolderError
from parley.server.rounds.party_requests import LARGEST_REPLY
from parley.server.run_launcher import launch_run, open_run, record_error

if TYPE_CHECKING:
    from parley.client.contract.roster import Deployment
    from parley.server.jobs.job import Job

_log = logging.getLogger("parley.server")

# A message outlives its exchange by this time, so that the transport's deadline decides. A later
# reply is ignored.
_TTL_MARGIN_S = 30.0
_FASTEST_POLL_S, _SLOWEST_POLL_S = 0.02, 0.2

app = ServerApp()


class GridTransport:
    """`parley.server.rounds.party_requests.Transport` over Flower's Grid.

    A node is the party under whose name its key was registered with the SuperLink, which checks
    that key. A simulation's nodes have no keys: the k-th is the k-th party, and each message names
    its folder. A party counts as not replying if it is late, failed, hangs, or sends no frame, and
    the log names it. An exception while its answer is read affects no other party.
    """

    def __init__(
        self,
        grid: Grid,
        deployment: Deployment,
        *,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connect to the grid's nodes.

        Args:
            folder: folder of a simulation's parties; None for a deployment.
        """
        self._grid = grid
        self._folder = folder
        self._clock, self._sleep = clock, sleep
        self._names = [party.name for party in deployment.parties]

    def online(self) -> tuple[int, ...]:
        """Return the parties that can be asked now, in order."""
        return tuple(sorted(self._list_nodes()))

    def exchange(
        self,
        requests: Mapping[int, bytes],
        *,
        timeout_s: float,
        largest: int = LARGEST_REPLY,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, bytes]]:
        """Send each party its request and yield (party, reply) as they come, until the deadline.

        Raises:
            ValueError: a request to a party that is not in the roster.
        """
        del is_enough  # Flower does not report which nodes are lost.
        beyond = sorted(set(requests) - set(range(len(self._names))))
        if beyond:
            raise ValueError(f"Expected parties below {len(self._names)}, got {beyond}.")
        nodes = self._list_nodes()
        deadline = self._clock() + timeout_s
        sent = [party for party in requests if party in nodes]
        messages = [
            self._build_message(party, nodes[party], timeout_s, requests[party]) for party in sent
        ]
        identifiers = self._push(messages)
        pending = {name: party for name, party in zip(identifiers, sent, strict=False) if name}
        for message in self._pull(pending, deadline):
            party = pending.pop(message.metadata.reply_to_message_id)
            frame = self._read_frame(message, party, nodes[party], largest)
            if frame:
                yield party, frame

    def _read_frame(self, message: Message, party: int, node: int, largest: int) -> bytes:
        """Return the frame of a party's answer; empty if it cannot be read."""
        try:
            if message.metadata.src_node_id != node:
                raise WireError("Expected the answer of the requested node.")
            frame = read_frame(message.content)
            if len(frame) > largest:
                raise WireError(f"Expected at most {largest} bytes, got {len(frame)}.")
            return frame
        except Exception as error:
            # Whatever the reply's bytes raise, it costs only this party's reply.
            self._log_unreadable(party, error)
            return b""

    def _log_unreadable(self, party: int, error: Exception) -> None:
        name = self._names[party] if party < len(self._names) else f"Node {party}"
        _log.warning("%s gave no readable answer (%s).", name, type(error).__name__)

    def _pull_replies(self, pending: dict[str, int]) -> list[Message]:
        """Return replies to pending requests; drop a request whose answer cannot be pulled."""
        found: list[Message] = []
        # One by one, so that an error with one reply does not affect others.
        for name in list(pending):
            try:
                found += self._grid.pull_messages([name])
            except Exception as error:
                self._log_unreadable(pending.pop(name), error)
        return found

    def _pull(self, pending: dict[str, int], deadline: float) -> Iterator[Message]:
        """Yield replies to pending requests; the caller removes each from `pending`."""
        pause = _FASTEST_POLL_S
        while pending and self._clock() < deadline:
            replies = self._pull_replies(pending)
            for message in replies:
                # Only replies to this exchange: any other is to an earlier one.
                if message.metadata.reply_to_message_id in pending:
                    yield message
            pause = _FASTEST_POLL_S if replies else min(pause * 1.5, _SLOWEST_POLL_S)
            if pending:
                self._sleep(max(0.0, min(pause, deadline - self._clock())))

    def _list_nodes(self) -> dict[int, int]:
        """Return the node of each party that is online."""
        nodes = list(self._grid.get_nodes())
        if self._folder is not None:
            nodes.sort(key=lambda node: node.node_id)
            return {index: node.node_id for index, node in enumerate(nodes[: len(self._names)])}
        known = {node.name: node.node_id for node in nodes}
        return {index: known[name] for index, name in enumerate(self._names) if name in known}

    def _push(self, messages: list[Message]) -> list[str]:
        return list(self._grid.push_messages(messages)) if messages else []

    def _build_message(self, party: int, node: int, timeout_s: float, request: bytes) -> Message:
        more = {} if self._folder is None else {"folder": str(self._folder / f"party-{party}")}
        content = build_content(request, **more)
        ttl = timeout_s + _TTL_MARGIN_S
        return Message(content, node, "query.parley", ttl=ttl, group_id="")


@app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the job in Flower's run config."""
    place = _get_environment("PARLEY_RUN")
    with record_error(lambda: place):
        folder, job = _open_run_folder(context)
        place = folder.path
        deployment, parties = _load_roster(job, folder)
        transport = GridTransport(grid, deployment, folder=parties)
        launch_run(folder, job, transport=transport, deployment=deployment)
        if parties is not None and place != _get_environment("PARLEY_RUN"):
            _delete_secrets(parties)


def _delete_secrets(parties: Path) -> None:
    """Delete the identities and sessions of a simulation that no launcher cleans up."""
    for home in parties.glob("party-*"):
        (home / "identity.key").unlink(missing_ok=True)
        shutil.rmtree(home / "state", ignore_errors=True)


def _open_run_folder(context: Context) -> tuple[RunFolder, Job]:
    """Return the folder of this Flower run and its job: the launcher's, one to resume, or a new
    one.

    An existing folder has its own job, which takes precedence.
    """
    given, server = _get_environment("PARLEY_RUN"), _get_environment("PARLEY_SERVER")
    if given is not None:
        return open_run(given)
    name = str(context.run_config.get("run-folder", ""))
    if server is not None and name:
        # A plain name only, so that a submitter cannot reach beyond the server's own runs.
        if not is_plain_name(name):
            raise RunFolderError(f"Expected run-folder to be a run's name, got {name!r}.")
        return open_run(server / "runs" / name)
    job = from_run_config(context.run_config)
    check_submission(job)
    if server is not None:
        out = str(server / "runs")
        job = job.model_copy(update={"run": job.run.model_copy(update={"out": out})})
    return RunFolder.create(job), job


def _load_roster(job: Job, folder: RunFolder) -> tuple[Deployment, Path | None]:
    """Return the roster and, for a simulation, the folder of its parties."""
    server = _get_environment("PARLEY_SERVER")
    parties = folder.path / "parties"
    if _get_environment("PARLEY_RUN") is not None:
        return load_deployment(parties / "deployment.toml"), parties
    if server is not None:
        return load_deployment(server / "deployment.toml"), None
    # Only for simulations: the package is above this one, so that it is imported by name.
    prepared = importlib.import_module("parley.simulations.engine.party_folders")
    parties.mkdir(exist_ok=True)
    return prepared.prepare_parties(job, parties), parties.resolve()


def _get_environment(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None
