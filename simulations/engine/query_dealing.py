"""A session's parties dealt to workers, each of which reads its own parties' columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parley.client.data.frames import Frame
from parley.client.data.persons import Persons
from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock, of_persons, read_table_block
from parley.privacy.sampling.randomness import Randomness
from parley.simulations.engine.dealing import Workers, spans
from parley.simulations.engine.query_sums import AskedQueries, Ring, queries_summed

__all__ = ["DealtQueries", "TableShard", "table_shards"]


@dataclass(frozen=True, kw_only=True)
class TableShard:
    """Parties `first` to `last` − 1 of a session.

    Attributes:
        sources: their files or columns in memory, one a party; or the one that is split.
        schema: its text.
        parties: m, among whom the one is split, in its order; 0: one source a party.
        persons: whose records are bounded, if any are.
    """

    sources: tuple[str | Path | Frame, ...]
    schema: str
    first: int
    last: int
    parties: int
    persons: Persons | None

    def opened(self) -> Callable[..., Ring]:
        """Reads the columns; answers with a sum."""
        schema = Schema.from_toml(self.schema)
        block = read_table_block(self.sources, schema, persons=self.persons)
        if self.parties:
            ends = np.linspace(0, block.records, self.parties + 1).astype(np.int64)
            block = replace(block, offsets=ends)
        if self.persons is not None:
            block = of_persons(block, self.persons)
        if self.parties:
            block = block.part(self.first, self.last)

        def answer(
            asked: AskedQueries, lost: Sequence[int], coins: tuple[bytes, ...], drawn: Randomness
        ) -> Ring:
            own = replace(block, coins=coins)
            return queries_summed(own, replace(asked, lost=lost), drawn, first=self.first)

        return answer


def table_shards(
    sources: Sequence[str | Path | Frame],
    schema: Schema,
    parties: int,
    persons: Persons | None,
    workers: int,
) -> list[TableShard]:
    """A session's parties, dealt evenly.

    Args:
        sources: one a party, or one for all.
        schema: what their columns are.
        parties: m.
        persons: whose records are bounded, if any are.
        workers: how many.
    """
    split = len(sources) != parties
    own = [Path(each).resolve() if isinstance(each, str | Path) else each for each in sources]
    return [
        TableShard(
            sources=tuple(own if split else own[first:last]),
            schema=schema.to_toml(),
            first=first,
            last=last,
            parties=parties if split else 0,
            persons=persons,
        )
        for first, last in spans(parties, workers)
    ]


@dataclass(frozen=True, kw_only=True)
class DealtQueries:
    """A way to add parties up (`parley.simulations.engine.query_sums.QueryAdding`): by workers."""

    workers: Workers

    def __call__(self, block: TableBlock, asked: AskedQueries, randomness: Randomness) -> Ring:
        """The parties' sum."""
        # Each worker has its own part of the records; keys of kept answers are the session's.
        common = self.workers.shared(replace(asked, lost=()))
        questions = []
        for shard in self.workers.shards:
            lost = [p - shard.first for p in asked.lost if shard.first <= p < shard.last]
            coins = block.coins[shard.first : shard.last]
            questions.append((common, lost, coins, randomness))
        plan = asked.planned.plan
        total: Ring = np.zeros(plan.dimension, dtype=plan.encoding.dtype)
        for own in self.workers.ask(questions):
            total += own
        return total
