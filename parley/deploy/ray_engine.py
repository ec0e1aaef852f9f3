"""The engine over Ray: parties sharded over workers, on this machine or on a cluster.

Each worker maps its parties' rows from the folder of prepared rows, keeps them, and
answers a plan and a model with one ring sum. Sums add up in any order, so that a run has the bits
of the fast engine's. The driver plans, charges, draws the noise that is dealt or the server's, and
keeps the run folder: it is `parley.simulations.engine.fast` with another way to add parties up.

A worker that is lost is started again by Ray, wherever there is room, maps its rows again, and is
asked again. Nothing that it did not give back was opened. A cluster is trusted as one process is:
whoever may start tasks on it reads the rows.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm, InPieces
from parley.client.party.block_session import PartyPolicy, PartySession
from parley.deploy.processes import ProcessError
from parley.privacy.sampling.randomness import Randomness
from parley.server.jobs.job import Job, JobError
from parley.simulations.data.experiment import experiment_of
from parley.simulations.data.keeping import keep_data
from parley.simulations.data.prepared import PreparedData
from parley.simulations.engine.summing import Adding, Asked, Summed, charge, summed
from parley.version import __version__

__all__ = ["ray_workers"]

_REACH_S = 5.0
_TRIES = 6
_WAIT_S = 2.0
"""How often, and how far apart, a lost worker is asked again while Ray starts it anew."""


def _ray() -> Any:
    """The extra, once it is needed; it tells nobody that it is used."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return importlib.import_module("ray")


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """Which parties a worker holds: `first` to `last` − 1 of the rows in `place`."""

    job: Job
    place: Path
    first: int
    last: int
    version: str


class _Worker:
    """A Ray actor: the parties of one shard."""

    def __init__(self, shard: _Shard) -> None:
        self._shard = shard
        self._data: PreparedData | None = None
        self._session: PartySession | None = None
        self._algorithm = b""

    def ready(self) -> str:
        """Maps the rows; why it can't, or nothing."""
        shard, ray = self._shard, _ray()
        node = ray.util.get_node_ip_address()
        if shard.version != __version__:
            return f"Expected Parley {shard.version} on node {node}, got {__version__}."
        try:
            whole = PreparedData.load(shard.place)
        except OSError as error:
            return f"Expected {error.filename or shard.place} on node {node}, got none there."
        starts = np.concatenate([[0], np.cumsum(whole.sizes)])
        rows = slice(starts[shard.first], starts[shard.last])
        self._data = replace(
            whole,
            rows=whole.rows[rows],
            labels=whole.labels[rows],
            sizes=whole.sizes[shard.first : shard.last],
            party_names=(),
        )
        return ""

    def give(self, algorithm: FederatedAlgorithm, asked: Asked) -> Summed:
        """The sum of its parties; see `parley.simulations.engine.summing.summed`."""
        if self._data is None and (problem := self.ready()):
            raise RuntimeError(problem)
        shard = self._shard
        if self._session is None:
            world = experiment_of(shard.job, self._data).under(algorithm)  # type: ignore[arg-type]
            self._session = PartySession(
                block=replace(world.block, places=np.arange(shard.first, shard.last)),
                algorithm=algorithm,
                policy=PartyPolicy(budgets={}),  # the driver's parties have agreed
                randomness=Randomness(seed=shard.job.seed, party=None),
            )
        return summed(self._session, asked)


def _check_reached(address: str | None) -> None:
    """Raises JobError where nobody listens at host:port: Ray would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return  # none, "auto", or an address that Ray reads itself
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        raise JobError(
            f"Expected a Ray cluster at run.ray-address = {address!r}: {error}. "
            '`ray start --head` starts one; "auto" finds the one of this machine.'
        ) from error


@contextmanager
def ray_workers(job: Job, load: Callable[[Job], PreparedData]) -> Iterator[Adding]:
    """How parties are added up by workers of Ray, which end with the `with` block.

    Args:
        job: names the cluster and says how many workers there are.
        load: prepares its rows.

    Raises:
        JobError: Ray is not installed, there is no such cluster; a node without the rows, or with
            another Parley.
    """
    if importlib.util.find_spec("ray") is None:
        raise JobError(
            "The ray engine needs Ray, which is not installed. Add it with: "
            'pip install "parley[ray]"'
        )
    _check_reached(job.run.ray_address)
    place = keep_data(job, lambda: load(job))
    parties = job.parties.count
    ray = _ray()
    given = ray.is_initialized()  # by the caller, whose it stays
    if not given:
        try:
            ray.init(
                address=job.run.ray_address or "local",
                include_dashboard=False if not job.run.ray_address else None,
                log_to_driver=False,
                namespace="parley",
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise JobError(
                f"Expected a Ray cluster at run.ray-address = {job.run.ray_address!r}: {error}"
            ) from error
    try:
        found = ray.cluster_resources()
        count = min(parties, job.run.workers or max(1, int(found.get("CPU", 1))))
        ends = [parties * at // count for at in range(count + 1)]
        # By default an actor needs a core to be placed and none to stay: one that is started
        # again always finds room on what is left of the cluster.
        actor = ray.remote(max_restarts=-1, scheduling_strategy="SPREAD")(_Worker)
        shards = [
            _Shard(job=job, place=place.resolve(), first=a, last=b, version=__version__)
            for a, b in pairwise(ends)
        ]
        workers = [actor.remote(shard) for shard in shards]
        held = _Workers(shards=shards, workers=workers)
        held.check()
        yield held.added
    finally:
        if not given:
            ray.shutdown()


@dataclass(frozen=True, kw_only=True)
class _Workers:
    """Shards, and the actors that hold them."""

    shards: Sequence[_Shard]
    workers: Sequence[Any]

    def check(self) -> None:
        """Has every worker map its rows.

        Raises:
            JobError: a node without the rows, or with another Parley.
        """
        problems = self._asked([lambda each: each.ready.remote()] * len(self.workers))
        if found := [each for each in problems if each]:
            raise JobError(" ".join(found))

    def added(
        self, session: PartySession, asked: Asked, pieces: Sequence[tuple[int, int]] | None = None
    ) -> Summed:
        """The parties' sum, by all workers; of what comes before and after the rounds, here.

        Raises:
            ProcessError: a worker was lost and did not come back: the run can be resumed.
        """
        if not isinstance(session.algorithm, InPieces) or session.block.places is not None:
            return summed(session, asked, pieces)
        charge(session, asked)
        algorithm = _ray().put(session.algorithm)
        calls = [self._call(algorithm, asked, shard) for shard in self.shards]
        given = self._asked(calls)
        total = np.zeros(asked.plan.dimension, dtype=asked.plan.encoding.dtype)
        for each in given:
            total += each.total
        failed = [
            shard.first + party
            for shard, each in zip(self.shards, given, strict=True)
            for party in each.failed
        ]
        kept = np.concatenate([each.kept for each in given])
        return Summed(total=total, kept=kept, failed=tuple(failed))

    def _call(self, algorithm: Any, asked: Asked, shard: _Shard) -> Callable[[Any], Any]:
        own = replace(
            asked,
            refused=[p - shard.first for p in asked.refused if shard.first <= p < shard.last],
            absent=[p - shard.first for p in asked.absent if shard.first <= p < shard.last],
            kept=asked.kept[(asked.kept >= shard.first) & (asked.kept < shard.last)] - shard.first,
        )
        return lambda worker: worker.give.remote(algorithm, own)

    def _asked(self, calls: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """Every worker's answer; a lost one is asked again once it is back."""
        ray = _ray()
        waiting = [call(worker) for call, worker in zip(calls, self.workers, strict=True)]
        answers = []
        for at, call in enumerate(calls):
            for left in reversed(range(_TRIES)):
                try:
                    answers.append(ray.get(waiting[at]))
                    break
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, JobError) else error from None
                except ray.exceptions.RayError as error:
                    if not left:
                        shard = self.shards[at]
                        raise ProcessError(
                            f"Expected the worker of parties {shard.first} to {shard.last - 1} to "
                            f"come back, got {type(error).__name__}. Nothing of this round was "
                            "opened: continue with parley run --resume."
                        ) from error
                    time.sleep(_WAIT_S)
                    waiting[at] = call(self.workers[at])
        return answers
