"""Rows with few entries that are not zero: linear splines, bins and categories of many records.

Each row stores at most k values and their columns. Slices and selections of rows stay sparse.
NumPy functions see a dense array, so use them on a few thousand rows at a time. Sums of whole
numbers below 2⁵³ are exact in any order, so that sparse and dense rows give the same gradients
(`parley.client.models.integer_gradients`).

    >>> dense = np.array([[0.0, 0.5, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0]])
    >>> rows = SparseRows.allocate(2, 4, max_entries=2)
    >>> rows[0:2] = dense
    >>> rows.shape, rows.nbytes, np.asarray(rows[1:2]).tolist()
    ((2, 4), 40, [[0.0, 0.0, 1.0, 0.0]])
    >>> (rows.to_csr() @ np.ones(4)).tolist()
    [0.75, 1.0]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

MIN_DENSE_ENTRIES: Final = 1 << 24
"""Number of entries of a dense array from which on rows are stored sparse."""

_PIECE: Final = 512
"""Rows that are converted at a time, so that they stay in cache."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SparseRows:
    """N rows of `width` numbers, at most k of a row not zero.

    Attributes:
        values: `[N, k]` the entries; 0 for padding.
        columns: `[N, k]` their columns.
    """

    values: NDArray[np.floating[Any]]
    columns: NDArray[np.unsignedinteger[Any]]
    width: int

    @classmethod
    def allocate(
        cls, rows: int, width: int, *, max_entries: int, dtype: DTypeLike = np.float64
    ) -> SparseRows:
        """Return rows of zeros."""
        shape = rows, min(max_entries, width)
        kind = np.uint16 if width <= np.iinfo(np.uint16).max + 1 else np.uint32
        return cls(values=np.zeros(shape, dtype), columns=np.zeros(shape, kind), width=width)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, width)."""
        return len(self), self.width

    @property
    def max_entries(self) -> int:
        """k."""
        return int(self.values.shape[1])

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return 2

    @property
    def size(self) -> int:
        """The number of entries of the dense array."""
        return len(self) * self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an entry."""
        return self.values.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an entry of the dense array."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.values.nbytes + self.columns.nbytes

    def __getitem__(self, rows: Any) -> Any:
        """Return the chosen rows: sparse for a slice or a list of rows, else a dense array."""
        if isinstance(rows, slice) or (isinstance(rows, np.ndarray) and rows.ndim == 1):
            values, columns = self.values[rows], self.columns[rows]
            return SparseRows(values=values, columns=columns, width=self.width)
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "iu":
            return np.asarray(self[rows.ravel()]).reshape(*rows.shape, self.width)
        return np.asarray(self)[rows]

    def __setitem__(self, rows: slice | NDArray[np.integer[Any]], source: Any) -> None:
        """Store rows `[n, width]`, dense or sparse.

        Raises:
            ValueError: a row has more than k entries that are not zero.
        """
        if not isinstance(source, SparseRows):
            packed = SparseRows.allocate(
                *source.shape, max_entries=self.max_entries, dtype=self.dtype
            )
            for piece, part in packed.split():
                part._store(np.asarray(source[piece]))
            source = packed
        self.values[rows], self.columns[rows] = source.values, source.columns

    def _store(self, dense: NDArray[Any]) -> None:
        """Store dense rows `[N, width]` in these rows, which are zeros."""
        count, most = self.values.shape
        filled = dense != 0
        counts = np.count_nonzero(filled, axis=1)
        if counts.max(initial=0) > most:
            raise ValueError(f"Expected at most {most} entries in a row, got {counts.max()}.")
        found = np.flatnonzero(filled)
        column = found - np.repeat(np.arange(count) * self.width, counts)
        # Position of each entry in the flat `[N·k]` arrays.
        shift = np.arange(count) * most - (np.cumsum(counts) - counts)
        place = np.arange(len(found)) + np.repeat(shift, counts)
        np.put(self.values, place, dense.ravel()[found])
        np.put(self.columns, place, column)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return `[N, width]` the dense array."""
        if copy is False:
            raise ValueError("Expected a copy: sparse rows have no dense array.")
        return np.asarray(self.to_csr(dtype or self.dtype).toarray())

    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> NDArray[Any]:
        """Return `[N, width]` the dense array of this type."""
        return self.__array__(dtype)

    def to_csr(self, dtype: DTypeLike = np.float64) -> Any:
        """Return the rows as a `scipy.sparse.csr_array`, for exact products."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - start-up: few jobs have so many records (0.15 s)

        count, entries = self.values.shape
        starts = np.arange(count + 1, dtype=np.int32) * entries
        parts = self.values.astype(dtype).ravel(), self.columns.astype(np.int32).ravel(), starts
        return csr_array(parts, shape=self.shape)

    def split(self, rows: int = _PIECE) -> Iterator[tuple[slice, SparseRows]]:
        """Yield pieces of at most this many rows, and their positions."""
        for begin in range(0, len(self), rows):
            piece = slice(begin, min(begin + rows, len(self)))
            yield piece, self[piece]


FeatureRows = NDArray[np.floating[Any]] | SparseRows
"""`[N, p]` rows, dense or sparse."""


@dataclass(frozen=True, kw_only=True)
class RowStorage:
    """Storage of rows of which at most `max_entries` entries are not zero."""

    max_entries: int

    def _is_small(self, width: int) -> bool:
        """Return whether sparse rows take less than about half of the dense ones' memory."""
        return 3 * self.max_entries <= width

    def allocate(self, rows: int, width: int, *, dtype: DTypeLike = np.float64) -> FeatureRows:
        """Return memory for rows: sparse if there are many, and if that is small."""
        if self._is_small(width) and rows * width >= MIN_DENSE_ENTRIES:
            return SparseRows.allocate(rows, width, max_entries=self.max_entries, dtype=dtype)
        return np.empty((rows, width), dtype)

    def pack(self, dense: NDArray[np.float64]) -> FeatureRows:
        """Return a part of the rows, sparse if that is small."""
        if not self._is_small(dense.shape[1]):
            return dense
        packed = SparseRows.allocate(*dense.shape, max_entries=self.max_entries)
        packed[:] = dense
        return packed
