"""A session's parties in one process: their raw columns as one block.

Integers add up alike in any order, so that the ideal sum of all parties is made in one pass over
all records, never as `[B, d]`; the masked sum and shares of the noise need every party's vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.queries import reports_of
from parley.client.data.table_block import TableBlock
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.ideal import IdealSum, simulated_parameters
from parley.secure_agg.interface import DropStage, SecureSum, TooFewSurvivors
from parley.secure_agg.masked import MaskedSum
from parley.server.planning.queries import PlannedBatch
from parley.server.queries.cohort import QuerySum
from parley.server.queries.session import ATTEMPTS
from parley.simulations.engine.faults import FaultScript

__all__ = ["BlockQueries"]


@dataclass(kw_only=True)
class BlockQueries:
    """All parties of a simulated session.

    Attributes:
        block: their records.
        corrupt: c, of the masks.
        masked: whether the masked protocol runs in full.
        faults: who drops out or declines, when.
        randomness: of the parties' shares.
    """

    block: TableBlock
    corrupt: int
    masked: bool
    faults: FaultScript
    randomness: Randomness
    most_rounds: int = 1000
    trusting: bool = True
    _sums: dict[tuple[int, int], SecureSum] = field(default_factory=dict, init=False)
    _serial: int = field(default=0, init=False)

    def ask(
        self, planned: PlannedBatch, state: dict[str, NDArray[np.float64]], *, attempt: int
    ) -> QuerySum:
        """One batch's sum; see `parley.server.queries.cohort.QueryCohort`."""
        plan, block = planned.plan, self._said(planned, attempt // ATTEMPTS + 1)
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
        if isinstance(secure, IdealSum) and not lost and plan.shared is None:
            total = self._whole(planned, block, state)
            whole = plan.encoding.wrapped(np.ascontiguousarray(total))
            result = secure.of_all(whole, round_number=self._serial)
            return self._outcome(result, private)
        vectors = self._encoded(planned, block, state, attempt // ATTEMPTS + 1)
        result = secure.sum(vectors, round_number=self._serial, dropped=lost)
        if len(result.survivors) < plan.min_survivors:
            raise TooFewSurvivors(
                f"Expected >= {plan.min_survivors} survivors, got {len(result.survivors)}."
            )
        return self._outcome(result, private)

    def keep_answers(self, secret: bytes) -> None:
        """Gives each party a key by which its records keep the answers that they give."""
        keys = [
            blake2b(party.to_bytes(8, "big"), key=secret, person=b"parley/coins").digest()
            for party in range(self.block.parties)
        ]
        self.block = replace(self.block, coins=tuple(keys))

    def close(self) -> None:
        """Nothing is open."""

    def _said(self, planned: PlannedBatch, step: int) -> TableBlock:
        """The records, or what they say of themselves."""
        asked, number = reports_of(planned.batch), planned.plan.round_number
        if asked is None:
            return self.block
        return asked.said(self.block, lambda at: self.randomness.share(number, at, step))

    def _whole(
        self, planned: PlannedBatch, block: TableBlock, state: dict[str, NDArray[np.float64]]
    ) -> NDArray[np.int64]:
        """`[d]` the sum of all parties' vectors; as of one, where none is cut or by itself."""
        counting, most = planned.counting, int(planned.plan.encoding.bound)
        alike = not counting.clip and not counting.parties
        if alike and block.sizes.max() <= self._most(planned):
            one = replace(block, offsets=block.offsets[[0, -1]])
            (total,) = planned.batch.vectors(one, state)
            return total
        total = np.zeros(planned.plan.dimension, dtype=np.int64)
        for vector in counting.vectors(planned.batch, block, state, range(block.parties)):
            total += np.clip(vector, -most, most)
        return total

    def _encoded(
        self,
        planned: PlannedBatch,
        block: TableBlock,
        state: dict[str, NDArray[np.float64]],
        step: int,
    ) -> NDArray[Any]:
        """`[B, d]` ring elements, made a party at a time, each with its share of the noise."""
        plan = planned.plan
        encoded = np.empty((self.block.parties, plan.dimension), dtype=plan.encoding.dtype)
        split, most = plan.shared, int(plan.encoding.bound)
        places = range(block.parties)
        vectors = planned.counting.vectors(planned.batch, block, state, places)
        for party, vector in enumerate(vectors):
            row = np.clip(vector, -most, most)[None]
            if split is not None and split.shares is not None:
                stream = self.randomness.share(plan.round_number, party, step)
                split.shares.add(split.mechanism, row, [stream])
            encoded[party] = plan.encoding.wrapped(row[0])
        return encoded

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

    def _most(self, planned: PlannedBatch) -> int:
        """Records of a party that can't reach the bound."""
        relation = planned.counting.relation(planned.plan.primary.neighbouring)
        norms = planned.batch.norms(self.block.schema, relation)
        return int(planned.plan.encoding.bound) // norms.largest

    def _secure(self, ring_bits: int, least: int) -> SecureSum:
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
