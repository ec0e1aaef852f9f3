"""The parties' sum of a batch of queries: integers of a ring, which add up alike in any groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.queries import reports_of
from parley.client.data.table_block import TableBlock
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.rows import MadeRows
from parley.server.planning.queries import PlannedBatch

Ring = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, kw_only=True)
class AskedQueries:
    """What a block of parties is asked for.

    Attributes:
        planned, state: of the batch.
        step: which of the batch's sums, from 1.
        lost: parties that are not in the sum.
    """

    planned: PlannedBatch
    state: dict[str, NDArray[np.float64]]
    step: int
    lost: Collection[int] = ()


def queries_made(block: TableBlock, asked: AskedQueries, randomness: Randomness) -> MadeRows:
    """`[B, d]` ring elements of all parties, a row made when it is read: as its party makes it.

    Args:
        block: the parties' records.
        asked: what.
        randomness: of their shares.
    """
    plan = asked.planned.plan
    said = _said(block, asked, randomness, 0)

    def make(party: int) -> Ring:
        (vector,) = _vectors(said.part(party, party + 1), asked, party)
        return _encoded(vector, asked, randomness, party)

    shape = (block.parties, plan.dimension)
    return MadeRows(range(block.parties), make, shape=shape, dtype=plan.encoding.dtype)


def _encoded(
    vector: NDArray[np.int64], asked: AskedQueries, randomness: Randomness, party: int
) -> Ring:
    """`[d]` what a party sends, with its share of the noise."""
    plan, split = asked.planned.plan, asked.planned.plan.shared
    most = int(plan.encoding.bound)
    row = np.clip(vector, -most, most)[None]
    if split is not None and split.shares is not None:
        stream = randomness.share(plan.round_number, party, asked.step)
        split.shares.add(split.mechanism, row, [stream])
    return plan.encoding.wrapped(row[0])


def queries_summed(
    block: TableBlock, asked: AskedQueries, randomness: Randomness, *, first: int = 0
) -> Ring:
    """`[d]` the sum of the block's parties but for those that are lost: in one pass where it can.

    Args:
        block, asked, randomness: as `queries_made`; `lost` are places in the block.
        first: place of the block's first party among all.
    """
    plan = asked.planned.plan
    said = _said(block, asked, randomness, first)
    if not asked.lost and plan.shared is None:
        whole: Ring = plan.encoding.wrapped(np.ascontiguousarray(_whole(said, asked, first)))
        return whole
    lost, total = set(asked.lost), np.zeros(plan.dimension, dtype=plan.encoding.dtype)
    for place, vector in enumerate(_vectors(said, asked, first)):
        if place not in lost:
            total += _encoded(vector, asked, randomness, first + place)
    return total


QueryAdding = Callable[[TableBlock, AskedQueries, Randomness], Ring]
"""A way to add parties up: as `queries_summed`, wherever it is done."""


def _said(block: TableBlock, asked: AskedQueries, randomness: Randomness, first: int) -> TableBlock:
    """The records, or what they say of themselves."""
    reports, number = reports_of(asked.planned.batch), asked.planned.plan.round_number
    if reports is None:
        return block
    return reports.said(block, lambda at: randomness.share(number, first + at, asked.step))


def _vectors(block: TableBlock, asked: AskedQueries, first: int) -> Iterator[NDArray[np.int64]]:
    places = range(first, first + block.parties)
    planned = asked.planned
    yield from planned.counting.vectors(planned.batch, block, asked.state, places)


def _whole(block: TableBlock, asked: AskedQueries, first: int) -> NDArray[np.int64]:
    """`[d]` the sum of all parties' vectors; as of one, where none is cut or by itself."""
    planned, most = asked.planned, int(asked.planned.plan.encoding.bound)
    alike = not planned.counting.clip and not planned.counting.parties
    relation = planned.counting.relation(planned.plan.primary.neighbouring)
    norms = planned.batch.norms(block.schema, relation)
    if alike and block.sizes.max() <= most // norms.largest:
        one = replace(block, offsets=block.offsets[[0, -1]])
        (vector,) = planned.batch.vectors(one, asked.state)
        return vector
    total = np.zeros(planned.plan.dimension, dtype=np.int64)
    for vector in _vectors(block, asked, first):
        total += np.clip(vector, -most, most)
    return total
