"""`SampledBatch`: the records that parties sampled for one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

RecordLookup: TypeAlias = Callable[[NDArray[np.int64]], tuple[Tensor, Tensor]]
"""Function from positions in the data to their rows and labels on the network's device."""


@dataclass(frozen=True, kw_only=True)
class SampledBatch:
    """Batches of B parties.

    Attributes:
        first: `[B]` one position per party, repeated in rows of weight zero: no party's values
            touch another's.
    """

    lookup: RecordLookup
    positions: NDArray[np.int64]
    owners: NDArray[np.int64]
    first: NDArray[np.int64]

    def find_positions(
        self, assigned: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return `[B, w]` positions of the records assigned to rows `[B, w]`, and flags of real
        records.
        """
        there = assigned >= 0
        return np.where(there, np.append(self.positions, 0)[assigned], self.first[:, None]), there

    @classmethod
    def from_one_party(cls, lookup: RecordLookup, positions: NDArray[np.int64]) -> SampledBatch:
        """Build the batch of one party."""
        zero = np.zeros(1, dtype=np.int64)
        return cls(lookup=lookup, positions=positions, owners=np.zeros_like(positions), first=zero)
