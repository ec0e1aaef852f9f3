"""Sum the parties, a few at a time: no contribution is held once it is added.

Integers of a ring have the same sum in any order and in any groups. So the sum has the same bits,
however the block is cut. Within a group an algorithm processes the records in pieces that stay in
cache, on every available core (`parley.client.data.threaded_chunks`). So do the group's results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.data.threaded_chunks import compute_block_ranges, compute_row_ranges, map_chunks
from parley.client.party.party_session import PartySession

Ring = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, kw_only=True)
class SumRequest:
    """A request to a block of parties.

    Attributes:
        refused: parties that compute nothing.
        absent: parties that compute and are not in the sum.
        kept: `[k]` parties in order whose contributions are returned with the sum.
    """

    plan: ReleasePlan
    state: State
    refused: Collection[int] = ()
    absent: Collection[int] = ()
    dealt: bool = False
    kept: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class BlockSum:
    """The answer of a block of parties.

    Attributes:
        total: `[d]` ring elements.
        kept: `[k, d]` the requested contributions; zeros for parties that refused.
        failed: parties that have nothing they may release; the total is then of no use.
    """

    total: Ring
    kept: Ring
    failed: tuple[int, ...]


def list_pieces(algorithm: FederatedAlgorithm, block: PartyBlock) -> Sequence[tuple[int, int]]:
    """Return ranges of the block's parties that compute at once."""
    return compute_block_ranges(block, algorithm.dimension)


def sum_parties(
    session: PartySession, request: SumRequest, pieces: Sequence[tuple[int, int]] | None = None
) -> BlockSum:
    """Return the sum of the parties' contributions; each of them is charged.

    Args:
        pieces: result of `list_pieces`, if it is known.

    Raises:
        EncodingError, ValueError: as `PartySession.answer`.
    """
    plan, parties = request.plan, session.block.parties
    session.randomness.check(seeded=plan.seeded)
    willing = _exclude_parties(parties, request.refused)
    counted = _exclude_parties(parties, request.absent)
    charge_release(session, request)
    kept: Ring = np.zeros((len(request.kept), plan.dimension), dtype=plan.encoding.dtype)
    ranges = list_pieces(session.algorithm, session.block) if pieces is None else pieces
    done = [_sum_piece(session, request, willing, counted, kept, *each) for each in ranges]
    total: Ring = np.zeros(plan.dimension, dtype=plan.encoding.dtype)
    for own, _ in done:
        total += own
    failed = tuple(party for _, names in done for party in names)
    return BlockSum(total=total, kept=kept, failed=failed)


SumFunction = Callable[[PartySession, SumRequest], BlockSum]
"""A way to sum parties, equivalent to `sum_parties`, in any place."""


def charge_release(session: PartySession, request: SumRequest) -> None:
    """Count the release for the parties that compute for it."""
    willing = _exclude_parties(session.block.parties, request.refused)
    session.charge(request.plan, slice(None) if willing is None else np.flatnonzero(willing))


def _sum_piece(
    session: PartySession,
    request: SumRequest,
    willing: NDArray[np.bool_] | None,
    counted: NDArray[np.bool_] | None,
    kept: Ring,
    first: int,
    last: int,
) -> tuple[Ring, tuple[int, ...]]:
    """Return `[d]` the sum of some parties, and those that failed."""
    plan = request.plan
    nothing: Ring = np.zeros(plan.dimension, dtype=plan.encoding.dtype)
    rows = np.arange(first, last)
    if willing is not None:
        rows = rows[willing[first:last]]
        if not rows.size:
            return nothing, ()
    alike = rows.size == last - first
    block = session.block.slice_parties(first, last) if alike else session.block.take(rows)
    contribution = session.algorithm.local(request.state, block, plan, session.randomness)
    if contribution.failed:
        return nothing, tuple(int(rows[at]) for at in contribution.failed)

    def some(begin: int, end: int) -> Ring:
        own = rows[begin:end]
        values = contribution.apply_weights(plan, block.sizes, slice(begin, end))
        encoded = session.encode_values(plan, values, own, request.dealt)
        for at in range(*np.searchsorted(request.kept, [own[0], own[-1] + 1])):
            kept[at] = encoded[own == request.kept[at]].sum(axis=0, dtype=kept.dtype)
        if counted is not None:
            encoded = encoded[counted[own]]
        own_sum: Ring = np.add.reduce(encoded, axis=0, dtype=encoded.dtype)
        return own_sum

    ranges = compute_row_ranges(contribution.values)
    # Without noise in shares, starting threads would take longer than the work.
    if plan.shared_guarantee is None or request.dealt:
        sums = [some(*each) for each in ranges]
    else:
        sums = map_chunks(some, ranges)
    return np.add.reduce(sums, axis=0, dtype=nothing.dtype), ()


def _exclude_parties(parties: int, others: Collection[int]) -> NDArray[np.bool_] | None:
    """Return `[B]` a mask of all parties but the others; None: all parties."""
    if not others:
        return None
    chosen = np.ones(parties, dtype=bool)
    chosen[list(others)] = False
    return chosen
