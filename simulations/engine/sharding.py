"""Shard parties among workers: each holds a shard, and returns one ring sum.

A worker gets the same request as a block of parties here
(`parley.simulations.engine.streamed_sum`), for every algorithm. A contribution is a function of the
party's own records, its position and the state. Ring sums add up in any order, so that the total
has the same bits as in one process. This module does not depend on how requests and answers are
sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import get_learner
from parley.client.data.data_sources import FormattedFile, Source
from parley.client.data.query_party_block import (
    PersonIds,
    RawPartyBlock,
    limit_person_records,
    read_raw_party_block,
)
from parley.client.data.schema import Schema
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.job import Job
from parley.server.records.run_folder import resolve_paths
from parley.simulations.data.experiment_loading import build_experiment
from parley.simulations.data.memory_mapped_rows import load_prepared
from parley.simulations.data.prepared_data import PreparedData
from parley.simulations.engine.streamed_sum import (
    BlockSum,
    Ring,
    SumRequest,
    charge_release,
    sum_parties,
)


class WrongAnswer(RuntimeError):
    """A worker's answer is not a sum of its parties."""


class Workers(Protocol):
    """Workers that hold shards.

    Attributes:
        shards: one for each worker, in the order of the parties.
    """

    @property
    def shards(self) -> Sequence[Shard]: ...  # noqa: D102 - above

    def share_value(self, value: Any) -> Any:
        """Send a value once, and return what represents it in every worker's request."""

    def request_answers(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return every worker's answer to its own request, in their order."""


def split_evenly(parties: int, workers: int) -> list[tuple[int, int]]:
    """Return ranges (first, last + 1) of parties, one for each worker that has any.

    >>> split_evenly(7, 3), split_evenly(2, 5)
    ([(0, 2), (2, 4), (4, 7)], [(0, 1), (1, 2)])
    """
    count = min(parties, workers)
    return list(pairwise(parties * at // count for at in range(count + 1)))


def check_digest(actual: str, expected: str) -> None:
    """Raise ValueError if records are not those that were sharded."""
    if actual != expected:
        raise ValueError("others, with another digest")


def check_array(array: Any, expected: NDArray[Any], shard: Shard) -> None:
    """Raise WrongAnswer unless a worker returned an array of this shape and ring."""
    if type(array) is np.ndarray and (array.shape, array.dtype) == (expected.shape, expected.dtype):
        return
    got = f"{getattr(array, 'shape', type(array).__name__)} {getattr(array, 'dtype', '')}".strip()
    raise WrongAnswer(
        f"Expected {expected.shape} {expected.dtype} from the worker of parties {shard.first} to "
        f"{shard.last - 1}, got {got}."
    )


@dataclass(frozen=True, kw_only=True)
class RowShard:
    """Parties of a job with prepared rows in the folder `folder`, under this digest."""

    job: Job
    folder: Path
    first: int
    last: int
    digest: str

    def open_responder(self) -> Callable[..., BlockSum]:
        """Map the rows; return the function that answers (algorithm, common, own) for its parties.

        `common` is the request to all shards; `own` names this shard's parties by their position in
        it.

        Raises:
            OSError, ValueError: a file that is missing or has changed.
        """
        whole = load_prepared(self.folder)
        check_digest(whole.compute_digest(self.first, self.last), self.digest)
        starts = np.concatenate([[0], np.cumsum(whole.sizes)])
        rows = slice(starts[self.first], starts[self.last])
        held = replace(
            whole,
            rows=whole.rows[rows],
            labels=whole.labels[rows],
            sizes=whole.sizes[self.first : self.last],
            party_names=(),
        )
        places = np.arange(self.first, self.last)

        kept: PartySession | None = None

        def answer(
            algorithm: FederatedAlgorithm, common: SumRequest, own: dict[str, Any]
        ) -> BlockSum:
            nonlocal kept
            # The algorithm is of another stage.
            if kept is None or kept.algorithm.kind != algorithm.kind:
                block = build_experiment(self.job, held).bind_algorithm(algorithm).block
                kept = _build_session(replace(block, positions=places), algorithm, self.job.seed)
            return sum_parties(kept, replace(common, **own))

        return answer


def build_row_shards(job: Job, folder: Path, data: PreparedData, workers: int) -> list[RowShard]:
    """Shard a job's parties evenly; `data` are what `folder` contains."""
    job = resolve_paths(job)  # Workers may be on other machines.

    def shard(first: int, last: int) -> RowShard:
        digest = data.compute_digest(first, last)
        return RowShard(job=job, folder=folder.resolve(), first=first, last=last, digest=digest)

    return [shard(*each) for each in split_evenly(job.parties.count, workers)]


@dataclass(frozen=True, kw_only=True)
class TableShard:
    """Parties `first` to `last` − 1 of a query session.

    Attributes:
        sources: their files or columns in memory, one per party; or one source that is split.
        parties: m, among which one source is split, in its order; 0: one source per party.
    """

    sources: tuple[Source, ...]
    schema: str
    first: int
    last: int
    parties: int
    persons: PersonIds | None
    seed: int | None
    digest: str

    def open_responder(self) -> Callable[..., BlockSum]:
        """Read the columns; return the function that answers as that of a `RowShard`."""
        schema = Schema.from_toml(self.schema)
        whole = read_raw_party_block(self.sources, schema, persons=self.persons)
        block = split_source(whole, self.parties, self.persons)
        if self.parties:
            block = block.slice_parties(self.first, self.last)
        check_digest(_compute_digest(block), self.digest)
        block = replace(block, positions=np.arange(self.first, self.last))

        def answer(
            algorithm: FederatedAlgorithm, common: SumRequest, own: dict[str, Any]
        ) -> BlockSum:
            return sum_parties(_build_session(block, algorithm, self.seed), replace(common, **own))

        return answer


Shard = RowShard | TableShard
"""Parties `first` to `last` − 1, and the location of their records."""


def split_source(block: RawPartyBlock, parties: int, persons: PersonIds | None) -> RawPartyBlock:
    """Divide the records of one source among parties in its order (0: leave them unchanged).

    `persons` bounds the number of records per person in each party.
    """
    if parties:
        block = replace(block, offsets=np.linspace(0, block.records, parties + 1).astype(np.int64))
    return block if persons is None else limit_person_records(block, persons)


def build_table_shards(
    sources: Sequence[Source],
    block: RawPartyBlock,
    persons: PersonIds | None,
    seed: int | None,
    workers: int,
) -> list[TableShard]:
    """Shard a session's parties evenly; `block` was read from `sources`."""
    parties = block.parties
    divided = len(sources) != parties
    own = list(map(_resolve_source, sources))
    return [
        TableShard(
            sources=tuple(own if divided else own[first:last]),
            schema=block.schema.to_toml(),
            first=first,
            last=last,
            parties=parties if divided else 0,
            persons=persons,
            seed=seed,
            digest=_compute_digest(block.slice_parties(first, last)),
        )
        for first, last in split_evenly(parties, workers)
    ]


def _resolve_source(source: Source) -> Source:
    """Return a source that a worker with another working directory reads."""
    if isinstance(source, FormattedFile):
        return replace(source, name=str(Path(source.name).resolve()))
    return Path(source).resolve() if isinstance(source, str | Path) else source


def _compute_digest(block: RawPartyBlock) -> str:
    digest = hashlib.sha256()
    for name, values in (("", block.offsets), *sorted(block.columns.items())):
        digest.update(f"{name!r} {values.dtype} {values.shape} ".encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _build_session(block: Any, algorithm: FederatedAlgorithm, seed: int | None) -> PartySession:
    """Build the session of a shard's parties; they have agreed at the driver."""
    return PartySession(
        block=block,
        algorithm=algorithm,
        rules=RefusalRules(units=frozenset()),
        randomness=Randomness(seed=seed, party=None),
    )


@dataclass(frozen=True, kw_only=True)
class WorkerSum:
    """A `parley.simulations.engine.streamed_sum.SumFunction` that sums parties on workers."""

    workers: Workers

    def __call__(self, session: PartySession, request: SumRequest) -> BlockSum:
        """Return the parties' sum; for held-out records it is computed here, because no worker has
        them.
        """
        if get_learner(session.algorithm) is not session.algorithm:
            return sum_parties(session, request)
        charge_release(session, request)
        algorithm = self.workers.share_value(session.algorithm)
        nobody = request.kept[:0]
        common = self.workers.share_value(replace(request, refused=(), absent=(), kept=nobody))
        shards = self.workers.shards
        questions = [(algorithm, common, _select_own(request, each)) for each in shards]
        given = self.workers.request_answers(questions)
        total = np.zeros(request.plan.dimension, dtype=request.plan.encoding.dtype)
        for shard, each, (_, _, own) in zip(shards, given, questions, strict=True):
            _check(each, total, len(own["kept"]), shard)
            total += each.total
        failed = [
            shard.first + party
            for shard, each in zip(shards, given, strict=True)
            for party in each.failed
        ]
        kept = np.concatenate([each.kept for each in given])
        return BlockSum(total=total, kept=kept, failed=tuple(failed))


def _check(given: Any, total: Ring, kept: int, shard: Shard) -> None:
    """Raise WrongAnswer unless the answer is a sum of the shard's parties."""
    if type(given) is not BlockSum:
        raise WrongAnswer(f"Expected a sum of {shard.first} to {shard.last - 1}, got {given!r:.80}")
    check_array(given.total, total, shard)
    check_array(given.kept, np.zeros((kept, len(total)), total.dtype), shard)
    if not all(0 <= party < shard.last - shard.first for party in given.failed):
        raise WrongAnswer(
            f"Expected failed parties among the worker's own, got {given.failed!r:.80}."
        )


def _select_own(request: SumRequest, shard: Shard) -> dict[str, Any]:
    """Return the request's parties in one shard, by their position in it."""
    first, last = shard.first, shard.last
    return {
        "refused": [party - first for party in request.refused if first <= party < last],
        "absent": [party - first for party in request.absent if first <= party < last],
        "kept": request.kept[(request.kept >= first) & (request.kept < last)] - first,
    }
