"""A session's parties in one process: their raw columns as one block.

Integers add up alike in any order, so that the ideal sum of all parties is made in one pass over
all records, never as `[B, d]`; the masked sum and shares of the noise need every party's vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.table_block import TableBlock
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.ideal import IdealSum, simulated_parameters
from parley.secure_agg.interface import DropStage, TooFewSurvivors
from parley.secure_agg.masked import MaskedSum
from parley.server.planning.queries import PlannedBatch
from parley.server.queries.cohort import QuerySum
from parley.server.queries.session import ATTEMPTS
from parley.simulations.engine.faults import FaultScript
from parley.simulations.engine.query_sums import (
    AskedQueries,
    QueryAdding,
    queries_made,
    queries_summed,
)


@dataclass(kw_only=True)
class BlockQueries:
    """All parties of a simulated session.

    Attributes:
        block: their records.
        corrupt: c, of the masks.
        masked: whether the masked protocol runs in full.
        faults: who drops out or declines, when.
        randomness: of the parties' shares.
        adding: how contributions are added up, where the sum is the ideal one.
    """

    block: TableBlock
    corrupt: int
    masked: bool
    faults: FaultScript
    randomness: Randomness
    adding: QueryAdding = queries_summed
    most_rounds: int = 1000
    trusting: bool = True
    _sums: dict[tuple[int, int], IdealSum | MaskedSum] = field(default_factory=dict, init=False)
    _serial: int = field(default=0, init=False)

    def ask(
        self, planned: PlannedBatch, state: dict[str, NDArray[np.float64]], *, attempt: int
    ) -> QuerySum:
        """One batch's sum; see `parley.server.queries.cohort.QueryCohort`."""
        plan, block = planned.plan, self.block
        faults = self.faults.at(
            round_number=plan.round_number, attempt=attempt, parties=block.parties
        )
        lost = dict(faults.dropped)
        lost |= dict.fromkeys(faults.declined.tolist(), DropStage.BEFORE_VECTOR)
        private = planned.private
        if not private:  # whom the plan asks too much of, and who says so
            small = np.flatnonzero(block.sizes < plan.min_records).tolist()
            lost |= dict.fromkeys(small, DropStage.BEFORE_VECTOR)
        secure = self._secure(plan.encoding.ring_bits, plan.min_survivors)
        self._serial += 1
        asked = AskedQueries(planned=planned, state=state, step=attempt // ATTEMPTS + 1)
        if isinstance(secure, IdealSum):
            result = secure.settled(plan.dimension, round_number=self._serial, dropped=lost)
            # Who is lost later than that has given a vector, which is in the sum.
            gone = [party for party, at in lost.items() if at is DropStage.BEFORE_VECTOR]
            total = self.adding(block, replace(asked, lost=gone), self.randomness)
            result = replace(result, total=total)
        else:
            vectors = queries_made(block, asked, self.randomness)
            result = secure.sum(vectors, round_number=self._serial, dropped=lost)
        if len(result.survivors) < plan.min_survivors:
            raise TooFewSurvivors(
                f"Expected >= {plan.min_survivors} survivors, got {len(result.survivors)}."
            )
        return self._outcome(result, private)

    def close(self) -> None:
        """Nothing is open."""

    def _outcome(self, result: Any, private: bool) -> QuerySum:
        survivors = np.asarray(result.survivors, dtype=np.int64)
        return QuerySum(
            total=result.total,
            survivors=len(survivors),
            records=None if private else int(self.block.sizes[survivors].sum()),
            present=tuple(survivors.tolist()),
            bytes_up=result.bytes_up,
            bytes_down=result.bytes_down,
        )

    def _secure(self, ring_bits: int, least: int) -> IdealSum | MaskedSum:
        key = (ring_bits, least)
        if key not in self._sums:
            parameters = simulated_parameters(
                parties=self.block.parties,
                min_survivors=least,
                ring_bits=ring_bits,
                corrupt=self.corrupt,
            )
            self._sums[key] = (MaskedSum if self.masked else IdealSum)(parameters)
        return self._sums[key]
