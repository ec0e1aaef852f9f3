"""A session's parties dealt to workers, each of which reads its own parties' columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parley.client.data.frames import Frame
from parley.client.data.persons import Persons
from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock, of_persons, read_table_block
from parley.privacy.sampling.randomness import Randomness
from parley.simulations.engine.dealing import Workers, check_array, check_digest, spans
from parley.simulations.engine.query_sums import AskedQueries, Ring, queries_summed


@dataclass(frozen=True, kw_only=True)
class TableShard:
    """Parties `first` to `last` − 1 of a session.

    Attributes:
        sources: their files or columns in memory, one a party; or the one that is split.
        schema: its text.
        parties: m, among whom the one is split, in its order; 0: one source a party.
        persons: whose records are bounded, if any are.
        digest: of their records, as the process that asks read them.
    """

    sources: tuple[str | Path | Frame, ...]
    schema: str
    first: int
    last: int
    parties: int
    persons: Persons | None
    digest: str

    def opened(self) -> Callable[..., Ring]:
        """Reads the columns; answers with a sum.

        Raises:
            ValueError: other records than the process that asks read.
        """
        schema = Schema.from_toml(self.schema)
        block = read_table_block(self.sources, schema, persons=self.persons)
        if self.parties:
            ends = np.linspace(0, block.records, self.parties + 1).astype(np.int64)
            block = replace(block, offsets=ends)
        if self.persons is not None:
            block = of_persons(block, self.persons)
        if self.parties:
            block = block.part(self.first, self.last)
        check_digest(_digest(block), self.digest)

        def answer(asked: AskedQueries, lost: Sequence[int], drawn: Randomness) -> Ring:
            return queries_summed(block, replace(asked, lost=lost), drawn, first=self.first)

        return answer


def table_shards(
    sources: Sequence[str | Path | Frame], block: TableBlock, persons: Persons | None, workers: int
) -> list[TableShard]:
    """A session's parties, dealt evenly.

    Args:
        sources: one a party, or one for all.
        block: what was read from them.
        persons: whose records are bounded, if any are.
        workers: how many.
    """
    parties = block.parties
    split = len(sources) != parties
    own = [Path(each).resolve() if isinstance(each, str | Path) else each for each in sources]
    return [
        TableShard(
            sources=tuple(own if split else own[first:last]),
            schema=block.schema.to_toml(),
            first=first,
            last=last,
            parties=parties if split else 0,
            persons=persons,
            digest=_digest(block.part(first, last)),
        )
        for first, last in spans(parties, workers)
    ]


def _digest(block: TableBlock) -> str:
    digest = hashlib.sha256()
    for name, values in (("", block.offsets), *sorted(block.columns.items())):
        digest.update(f"{name!r} {values.dtype} {values.shape} ".encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class DealtQueries:
    """A way to add parties up (`parley.simulations.engine.query_sums.QueryAdding`): by workers."""

    workers: Workers

    def __call__(self, block: TableBlock, asked: AskedQueries, randomness: Randomness) -> Ring:
        """The parties' sum."""
        common = self.workers.shared(replace(asked, lost=()))
        questions = []
        for shard in self.workers.shards:
            lost = [p - shard.first for p in asked.lost if shard.first <= p < shard.last]
            questions.append((common, lost, randomness))
        plan = asked.planned.plan
        total: Ring = np.zeros(plan.dimension, dtype=plan.encoding.dtype)
        for shard, own in zip(self.workers.shards, self.workers.ask(questions), strict=True):
            check_array(own, total, shard)
            total += own
        return total
