"""Parties dealt to workers: each holds a shard of them, and answers with one ring sum.

What a worker is asked for is what a block of parties is asked for here
(`parley.simulations.engine.summing`), whatever the algorithm: a contribution is a function of the
party's own records, its place and the state, and ring sums add up in any order, so that the total
has the bits of one process's. Who carries questions and answers is no matter of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.held_out_counts import learner_of
from parley.client.party.block_session import PartyPolicy, PartySession
from parley.privacy.sampling.randomness import Randomness
from parley.server.jobs.job import Job
from parley.simulations.data.experiment import experiment_of
from parley.simulations.data.prepared import PreparedData
from parley.simulations.engine.summing import Asked, Summed, charge, summed

__all__ = ["Dealt", "RowShard", "Shard", "Workers", "row_shards", "spans"]


class Shard(Protocol):
    """Parties `first` to `last` − 1, and where their records are."""

    @property
    def first(self) -> int: ...  # noqa: D102 - above

    @property
    def last(self) -> int: ...  # noqa: D102 - above

    def opened(self) -> Callable[..., Any]:
        """Loads the records; gives what answers questions about them.

        Raises:
            OSError, ValueError: a file that is not there, or is not what it was.
        """


class Workers(Protocol):
    """Those who hold shards.

    Attributes:
        shards: one for each worker, in the order of the parties.
    """

    @property
    def shards(self) -> Sequence[Shard]: ...  # noqa: D102 - above

    def shared(self, value: Any) -> Any:
        """A value that is sent once, to stand in every worker's question."""

    def ask(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Every worker's answer to its own question, in their order."""


def spans(parties: int, workers: int) -> list[tuple[int, int]]:
    """Ranges (first, last + 1) of parties, one for each worker that has any.

    >>> spans(7, 3), spans(2, 5)
    ([(0, 2), (2, 4), (4, 7)], [(0, 1), (1, 2)])
    """
    count = min(parties, workers)
    return list(pairwise(parties * at // count for at in range(count + 1)))


@dataclass(frozen=True, kw_only=True)
class RowShard:
    """Parties of a job, whose prepared rows are in the folder `place`."""

    job: Job
    place: Path
    first: int
    last: int

    def opened(self) -> Callable[..., Summed]:
        """Maps the rows; its answers are those of `_Rows`."""
        whole = PreparedData.load(self.place)
        starts = np.concatenate([[0], np.cumsum(whole.sizes)])
        rows = slice(starts[self.first], starts[self.last])
        own = replace(
            whole,
            rows=whole.rows[rows],
            labels=whole.labels[rows],
            sizes=whole.sizes[self.first : self.last],
            party_names=(),
        )
        return _Rows(shard=self, data=own)


def row_shards(job: Job, place: Path, workers: int) -> list[RowShard]:
    """A job's parties, dealt evenly."""
    ends = spans(job.parties.count, workers)
    return [RowShard(job=job, place=place.resolve(), first=a, last=b) for a, b in ends]


@dataclass(kw_only=True)
class _Rows:
    """The rows of a shard, and the session of the stage that is asked for."""

    shard: RowShard
    data: PreparedData
    _session: PartySession | None = field(default=None, init=False)

    def __call__(self, algorithm: FederatedAlgorithm, common: Asked, own: dict[str, Any]) -> Summed:
        """The sum of its parties.

        Args:
            algorithm: of the stage.
            common: what all shards are asked for.
            own: fields of it that name this shard's parties, by place in it.
        """
        if self._session is None or self._session.algorithm.kind != algorithm.kind:
            shard = self.shard
            world = experiment_of(shard.job, self.data).under(algorithm)
            self._session = PartySession(
                block=replace(world.block, places=np.arange(shard.first, shard.last)),
                algorithm=algorithm,
                policy=PartyPolicy(budgets={}),  # the driver's parties have agreed
                randomness=Randomness(seed=shard.job.seed, party=None),
            )
        return summed(self._session, replace(common, **own))


@dataclass(frozen=True, kw_only=True)
class Dealt:
    """A way to add parties up (`parley.simulations.engine.summing.Adding`): by workers."""

    workers: Workers

    def __call__(
        self, session: PartySession, asked: Asked, pieces: Sequence[tuple[int, int]]
    ) -> Summed:
        """The parties' sum. Of held-out records it is made here: no worker has them."""
        if learner_of(session.algorithm) is not session.algorithm:
            return summed(session, asked, pieces)
        charge(session, asked)
        algorithm = self.workers.shared(session.algorithm)
        nobody = asked.kept[:0]
        common = self.workers.shared(replace(asked, refused=(), absent=(), kept=nobody))
        shards = self.workers.shards
        given = self.workers.ask([(algorithm, common, _own(asked, each)) for each in shards])
        total = np.zeros(asked.plan.dimension, dtype=asked.plan.encoding.dtype)
        for each in given:
            total += each.total
        failed = [
            shard.first + party
            for shard, each in zip(shards, given, strict=True)
            for party in each.failed
        ]
        kept = np.concatenate([each.kept for each in given])
        return Summed(total=total, kept=kept, failed=tuple(failed))


def _own(asked: Asked, shard: Shard) -> dict[str, Any]:
    """What names parties, of those of one shard and by their places in it."""
    first, last = shard.first, shard.last
    return {
        "refused": [party - first for party in asked.refused if first <= party < last],
        "absent": [party - first for party in asked.absent if first <= party < last],
        "kept": asked.kept[(asked.kept >= first) & (asked.kept < last)] - first,
    }
