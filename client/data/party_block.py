"""`PartyBlock`: the records of B parties, processed together.

Records are stored party after party in one array. `offsets` gives each party's beginning. A real
party is a block with B = 1; the fast engine's block contains all parties.

    >>> import numpy as np
    >>> block = PartyBlock(
    ...     features=np.zeros((5, 2)), labels=np.zeros(5), offsets=np.array([0, 2, 5])
    ... )
    >>> block.parties, block.sizes.tolist(), block.uniform_size
    (2, [2, 3], None)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from parley.privacy.sensitivity.exact_row_arithmetic import compute_squares

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows

ROW_BITS: Final = 16
"""Entries of prepared rows are integer multiples of 2^-16."""

_CHUNK_ROWS: Final = 2048


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyRecords:
    """Records of B parties, stored party after party.

    Attributes:
        offsets: `[B + 1]` int64; party j has rows `offsets[j]:offsets[j + 1]`.
        positions: `[B]` positions of the parties among all parties; default: 0 to B − 1.
    """

    offsets: NDArray[np.int64]
    positions: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", np.asarray(self.offsets, dtype=np.int64))
        if self.offsets.ndim != 1 or len(self.offsets) < 2 or self.offsets[0] != 0:
            raise ValueError("Expected offsets [0, …] with one entry more than parties.")
        if self.sizes.min() < 1:
            raise ValueError(
                f"Expected a record of every party, party {self.sizes.argmin()} has 0."
            )

    def get_positions(self) -> NDArray[np.int64]:
        """Return `[B]` the parties' positions among all parties."""
        return np.arange(self.parties) if self.positions is None else self.positions

    @property
    def parties(self) -> int:
        """B, the number of parties."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """`[B]` number of records per party, read-only."""
        sizes = np.diff(self.offsets)
        sizes.flags.writeable = False
        return sizes


@dataclass(frozen=True, kw_only=True, repr=False)
class PartyBlock(PartyRecords):
    """Records of B parties to learn from.

    Attributes:
        features: `[N, p]` float32 or float64, every row with L2 norm at most 1; sparse if they are
            many (`parley.client.data.sparse_rows`).
        labels: `[N]`; −1/+1 (logistic), targets (ridge) or classes 0..K−1 (softmax).
    """

    features: FeatureRows
    labels: NDArray[np.generic]
    _begin: int = 0
    _squares: dict[tuple[int, int], NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features.ndim != 2:
            raise ValueError(f"Expected features of shape [N, p], got {self.features.shape}.")
        records = self.features.shape[0]
        if self.labels.shape != (records,):
            raise ValueError(f"Expected {records} labels, got shape {self.labels.shape}.")
        if self.offsets[-1] != records:
            raise ValueError(f"Expected offsets to end at {records}, got {self.offsets[-1]}.")

    @property
    def dense_features(self) -> NDArray[np.floating]:
        """`[N, p]` the features as one array."""
        return np.asarray(self.features)

    @property
    def record_bytes(self) -> int:
        """Bytes of a record's features."""
        return int(self.features.nbytes // len(self.features))

    @property
    def row_squares(self) -> NDArray[np.float64]:
        """`[N]` exact ‖x‖² in units of 2^-32; ∞ for a row that is off the grid or longer than 1.

        It is computed once for all rounds, and a slice of the block reuses it.
        """
        where = self._begin, self._begin + len(self.features)
        if where not in self._squares:
            found = np.empty(len(self.features))
            for begin in range(0, len(found), _CHUNK_ROWS):
                piece = slice(begin, begin + _CHUNK_ROWS)
                rows = self.features[piece]
                entries = rows if isinstance(rows, np.ndarray) else rows.values
                with np.errstate(over="ignore"):
                    whole = np.multiply(entries, 2.0**ROW_BITS, dtype=np.float64)
                found[piece] = compute_squares(whole)
            found[~(found <= 4.0**ROW_BITS)] = np.inf
            found.flags.writeable = False
            self._squares[where] = found
        return self._squares[where]

    @cached_property
    def uniform_size(self) -> int | None:
        """n if every party has n records, else None.

        With n, `features` reshapes to `[B, n, p]` without a copy.
        """
        sizes = self.sizes
        return int(sizes[0]) if (sizes == sizes[0]).all() else None

    def slice_parties(self, first: int, last: int) -> PartyBlock:
        """Return the block of parties `first` to `last − 1` as a view, without copying."""
        if (first, last) == (0, self.parties):
            return self
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        return replace(
            self,
            features=self.features[begin:end],
            labels=self.labels[begin:end],
            offsets=self.offsets[first : last + 1] - begin,
            positions=self.get_positions()[first:last],
            _begin=self._begin + begin,
        )

    def take(self, parties: Sequence[int] | NDArray[np.int64]) -> PartyBlock:
        """Return the block of the chosen parties, in the order given."""
        chosen = np.array(parties, dtype=np.int64)
        begins = self.offsets[chosen]
        sizes = self.offsets[chosen + 1] - begins
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        index = np.repeat(begins - offsets[:-1], sizes) + np.arange(offsets[-1])
        return replace(
            self,
            features=self.features[index],
            labels=self.labels[index],
            offsets=offsets,
            positions=self.get_positions()[chosen],
            _begin=0,
            _squares={},
        )
