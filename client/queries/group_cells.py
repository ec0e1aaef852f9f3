"""Public cells that divide records, and what a record adds to its cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.query_party_block import RawPartyBlock

Codes = NDArray[np.intp]
Integers = NDArray[np.int64]
Keys = dict[str, Any]
"""Columns of an answer that identify its cells, `[size]` each."""

FINE_BITS = 48
"""Bits of a record's number: 24 high and 24 low ones. 2²⁹ of either part sum exactly."""
_LOW_BITS = FINE_BITS // 2


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One division of records into `size` cells: `[N]` each record's cell, and the cells' names.

    Attributes:
        name: a key that is equal for axes that divide records in the same way; None: unique.
    """

    size: int
    codes: Callable[[RawPartyBlock], Codes]
    keys: Callable[[], Keys] = dict
    name: Hashable = None


@dataclass(frozen=True, kw_only=True)
class CellGrid:
    """Every combination of some axes' cells. The last axis changes first."""

    axes: tuple[Axis, ...] = ()

    @property
    def count(self) -> int:
        """Number of cells; 1 without axes."""
        return math.prod(axis.size for axis in self.axes)

    def compute_codes(self, block: RawPartyBlock) -> Codes:
        """Return `[N]` the cell of each record, always a valid one, whatever an axis returns."""
        codes = np.zeros(block.records, dtype=np.intp)
        for axis in self.axes:
            codes *= axis.size
            codes += np.clip(axis.codes(block), 0, axis.size - 1)
        return codes

    def build_key_columns(self) -> Keys:
        """Return the key columns, `[count]` each."""
        found: Keys = {}
        before, after = 1, self.count
        for axis in self.axes:
            after //= axis.size
            for name, own in axis.keys().items():
                found[name] = np.tile(np.repeat(np.asarray(own), after), before)
            before *= axis.size
        return found


@dataclass(frozen=True, kw_only=True)
class Summand:
    """A number from `low` to `high` that a record adds, from `compute`; None: `high`.

    A record's number is rounded far below 1, and a party's sum of them is rounded once to an
    integer (`round_sums`). The rounding therefore does not grow with the number of records.
    """

    low: int
    high: int
    compute: Callable[[RawPartyBlock], NDArray[Any]] | None = None

    @classmethod
    def from_constant(cls, number: int) -> Summand:
        """Return a summand that is the same for every record."""
        return cls(low=number, high=number)

    def build_cell_adder(self, block: RawPartyBlock) -> Callable[[Codes, Codes, int], Integers]:
        """Return a function that sums it by cell, over records at given positions of the block."""
        if self.compute is None:
            return lambda places, codes, cells: np.bincount(codes, minlength=cells) * self.high
        # Clamp to the ends, whatever a product rounds to. NaN becomes `low`.
        values = np.fmin(np.fmax(self.compute(block), self.low), self.high)
        bits = max(FINE_BITS - max(abs(self.low), abs(self.high)).bit_length(), 0)
        return lambda places, codes, cells: round_sums(codes, values[places], cells, bits)


def round_sums(codes: Codes, values: NDArray[np.float64], cells: int, bits: int) -> Integers:
    """Return `[cells]` the sums of values by code, each rounded once, while they are below 2⁶³.

    A value is rounded to the nearest 2^−bits, and is below 2^(48 − bits). The sum of these is
    exact: their high and low digits are added as doubles below 2⁵³. The result is ⌊sum + ½⌋. A
    value between integers l and h therefore moves it by at most h − l, whatever the others are
    (docs/privacy-proof.md).

    >>> round_sums(np.array([0, 0, 1]), np.array([0.25, 0.25, -2.75]), 2, 40).tolist()
    [1, -3]
    """
    fine = np.rint(np.ldexp(values, bits))
    high = np.floor(np.ldexp(fine, -_LOW_BITS))
    above, below = (
        np.bincount(codes, weights=part, minlength=cells).astype(np.int64)
        for part in (high, fine - np.ldexp(high, _LOW_BITS))
    )
    below += (1 << bits) >> 1
    carried = bits - _LOW_BITS
    if carried < 0:
        return np.asarray((above << -carried) + (below >> bits))
    return np.asarray((above + (below >> _LOW_BITS)) >> carried)
