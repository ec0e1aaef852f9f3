"""Public cells that records are divided into, and what a record adds to its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.table_block import TableBlock

Codes = NDArray[np.intp]
Integers = NDArray[np.int64]
Keys = dict[str, Any]
"""Columns of an answer that say what its cells are, `[size]` each."""

_DIGITS = 2**20
"""Of entries up to 2⁴⁰: either half of so many as memory holds adds up to less than 2⁵³."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One thing that divides records into `size` cells: `[N]` each record's, and their names.

    Attributes:
        name: the same of axes that divide records in the same way; None: of no other.
    """

    size: int
    codes: Callable[[TableBlock], Codes]
    keys: Callable[[], Keys] = dict
    name: Hashable = None


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Every combination of some axes' cells, the last axis first to change."""

    axes: tuple[Axis, ...] = ()

    @property
    def count(self) -> int:
        """1 without axes."""
        return math.prod(axis.size for axis in self.axes)

    def codes(self, block: TableBlock) -> Codes:
        """`[N]` the cell of each record: one of them, whatever an axis makes of it."""
        codes = np.zeros(block.records, dtype=np.intp)
        for axis in self.axes:
            codes *= axis.size
            codes += np.clip(axis.codes(block), 0, axis.size - 1)
        return codes

    def keys(self) -> Keys:
        """`[count]` each."""
        found: Keys = {}
        before, after = 1, self.count
        for axis in self.axes:
            after //= axis.size
            for name, own in axis.keys().items():
                found[name] = np.tile(np.repeat(np.asarray(own), after), before)
            before *= axis.size
        return found


@dataclass(frozen=True, kw_only=True)
class Adds:
    """A whole number from `low` to `high` that a record adds: `of` it, rounded; None: `high`."""

    low: int
    high: int
    of: Callable[[TableBlock], NDArray[Any]] | None = None

    @classmethod
    def always(cls, number: int) -> Adds:
        """The same of every record."""
        return cls(low=number, high=number)

    def sums(self, block: TableBlock) -> Callable[[Codes, Codes, int], Integers]:
        """What adds it up by cell, of the records at some places of the block."""
        if self.of is None:
            return lambda places, codes, cells: np.bincount(codes, minlength=cells) * self.high
        # Within the ends, whatever a product rounds to; NaN is `low`.
        values = np.fmin(np.fmax(np.rint(self.of(block)), self.low), self.high)
        return lambda places, codes, cells: summed(codes, values[places], cells)


def summed(codes: Codes, values: NDArray[np.float64], cells: int) -> Integers:
    """`[cells]` exact sums of whole numbers by code, while they are below 2⁶³.

    Doubles are exact below 2⁵³ only: beyond, a record more would round the others' sums. There the
    high and the low digits are added up apart.
    """
    if np.abs(values).max(initial=0) * len(values) < 2**53:
        return np.bincount(codes, weights=values, minlength=cells).astype(np.int64)
    high = np.floor(values / _DIGITS)
    sums = [
        np.bincount(codes, weights=part, minlength=cells).astype(np.int64)
        for part in (high, values - high * _DIGITS)
    ]
    return sums[0] * _DIGITS + sums[1]
