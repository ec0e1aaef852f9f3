"""Sums of a linear model's gradients in whole numbers: what a record adds is its own, exactly.

A record's gradient is slope(θ·x)·xᵀ. Its slope is a function of that record, θ and public numbers,
and is computed by arithmetic on that record alone; the two products about it are exact, so that
neither order nor company, blocks, threads or the library's kernel can matter:

| | whole numbers, times | such that |
|---|---|---|
| row x | 2^-16, once, when rows are prepared | ‖x‖ ≤ 2^16; a longer one adds nothing |
| θ, once a round | a power of two that ‖θ‖∞ says | ‖θ‖·2^16 < 2^53: so is every part of θ·x |
| slope s | 2^-k (`SlopeGrid`) | ‖s‖·‖x‖ ≤ S·2^16, asked of the numbers themselves |
| Σ s xᵀ | 2^-(k + 16) | added up as whole numbers of 64 bits |

What a record adds thus lies in the ball of radius S·2^16, whatever θ, x and the loss are: which
factor its slope was scaled and clipped by is no matter. A θ that is not finite gives zeros.

    >>> from parley.client.models.losses import Logistic
    >>> rows = np.array([[0.5, 0.0], [0.0, 0.75]])
    >>> block = PartyBlock(features=rows, labels=np.array([1.0, -1.0]), offsets=np.array([0, 2]))
    >>> model = LinearModel(loss=Logistic(), features=2)
    >>> gradients(model, np.zeros(2), block).round(6).tolist()
    [[-0.125, 0.1875]]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.data.block import ROW_BITS, PartyBlock
from parley.client.data.chunks import CHUNK_BYTES, chunk_ranges, for_each_chunk
from parley.client.models.linear import LinearModel
from parley.client.models.rows import cut_rows
from parley.privacy.accounting.rounding import exact
from parley.privacy.kernel.rows import keep_slopes, outer_sum, squares
from parley.privacy.kernel.sets import Set

Real = NDArray[np.float64]

_SUM_BITS: Final = 52
"""A party's sum is of fewer bits, and so a float64."""

MOST_RECORDS: Final = 1 << 28
"""Of a party whose number of records is private: the sum of so many has 63 bits."""


@dataclass(frozen=True, kw_only=True)
class SlopeGrid:
    """The grid of slopes that are divided by a number of records already.

    Attributes:
        longest: G, or the C that gradients are clipped to.
        largest: entries of a party's sum are clamped to ± this, which brings no two sums further
            apart.
        bits: k; slopes are whole numbers of 2^-k.
    """

    longest: float
    largest: float
    bits: int

    @classmethod
    def of(cls, longest: float, *, heaviest: float = 1.0, private: int | None = None) -> SlopeGrid:
        """The finest on which sums of gradients keep 52 bits.

        Args:
            heaviest: by which a party's number of records may exceed the one that it is divided by.
            private: n, where a party's number is private and its sum is divided by this.
        """
        largest = longest * heaviest
        bits = _SUM_BITS - ROW_BITS - math.frexp(largest)[1]
        if private is not None:  # S < 2^18: `MOST_RECORDS` of 2^34 each
            bits = min(bits, 18 - math.frexp(longest / private)[1])
        return cls(longest=longest, largest=largest, bits=bits)

    @property
    def sum_bits(self) -> int:
        """k + 16, of the sums."""
        return self.bits + ROW_BITS

    def most(self, records: Fraction | int) -> int:
        """S = ⌊2^k·G/n⌋: no slope of a row of length 1 is larger, divided by n records."""
        return math.floor(exact(self.longest) * Fraction(2) ** self.bits / records)

    def ball(self, dimension: int, records: Fraction | int) -> Set:
        """Of radius S·2^16: where a record's gradient lies."""
        return Set.ball(dimension, squared=(self.most(records) << ROW_BITS) ** 2)


def gradients(
    model: LinearModel,
    theta: Real,
    block: PartyBlock,
    clip: float | None = None,
    *,
    grid: SlopeGrid | None = None,
    records: Fraction | int | None = None,
) -> Real:
    """`[B, d]` every party's sum of its records' gradients of the data loss, divided by n.

    Args:
        theta: `[d]`, or `[B, d]` a model of each party's own.
        clip: C; each record's gradient is scaled down to L2 norm ≤ C before the sum.
        grid: left out: that of means.
        records: n; None: each party's own number, which is public then.

    Returns:
        Multiples of 2^-`grid.sum_bits`, of at most 52 bits.
    """
    each = np.atleast_2d(theta)
    if block.features.shape[1] != model.features or each.shape not in (
        (1, model.dimension),
        (block.parties, model.dimension),
    ):
        raise ValueError(
            f"Expected rows of {model.features} features and theta of {model.dimension} entries, "
            f"got {block.features.shape} and {theta.shape}."
        )
    if clip is not None and not clip > 0:
        raise ValueError(f"Expected clip > 0, got {clip}.")
    grid = grid or SlopeGrid.of(model.lipschitz if clip is None else clip)
    totals = np.zeros((block.parties, model.loss.outputs, model.features), np.int64)
    known = np.asarray(np.isfinite(each).all(axis=1))
    if known.any():
        most = {n: grid.most(records or n) for n in set(block.sizes.tolist())}
        sums = _Sums(
            model=model,
            block=block,
            clip=clip,
            longest=grid.longest,
            most=np.array([most[n] for n in block.sizes.tolist()]),
            theta=_cut(np.where(known[:, None], each, 0).reshape(-1, *totals.shape[1:])),
        )
        pieces = _pieces(block)
        with np.errstate(all="ignore"):  # what is not finite is dropped
            done = for_each_chunk(
                lambda at, _: sums.of(*pieces[at]), [(at, at + 1) for at in range(len(pieces))]
            )
        for (first, last, *_), found in zip(pieces, done, strict=True):
            totals[first:last] += found
    totals *= known[:, None, None]
    limit = math.floor(exact(grid.largest) * Fraction(2) ** grid.sum_bits)
    np.clip(totals, -limit, limit, out=totals)
    return np.asarray(totals.reshape(block.parties, -1) * 2.0**-grid.sum_bits)


def _cut(theta: Real) -> tuple[Real, Real]:
    """`[T, K, p]` whole numbers, no row longer than 2^36; `[T]` powers of two that they count."""
    exponents = np.frexp(np.abs(theta).max(axis=(1, 2)))[1]
    bits = 36 - ((theta.shape[2] - 1).bit_length() + 1) // 2  # 2^36 ≥ √p·2^bits
    whole = np.rint(np.ldexp(theta, (bits - exponents)[:, None, None]))
    return whole, np.ldexp(1.0, exponents - bits)


def _pieces(block: PartyBlock) -> list[tuple[int, int, int, int]]:
    """Parties (first, last + 1) and records (begin, end) that stay in cache; a part of a large
    party's.
    """
    rows = max(2 * CHUNK_BYTES // (8 * block.features.shape[1]), 1)
    pieces = []
    for first, last in chunk_ranges(block.offsets, rows, block.uniform_size):
        begin, end = int(block.offsets[first]), int(block.offsets[last])
        step = rows if last == first + 1 else end - begin
        pieces += [(first, last, at, min(at + step, end)) for at in range(begin, end, step)]
    return pieces


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Sums over pieces of a block.

    Attributes:
        longest: G.
        most: `[B]` S, a slope of length G.
        theta: whole numbers `[T, K, p]` and their units `[T]`, T = 1 or B.
    """

    model: LinearModel
    block: PartyBlock
    clip: float | None
    longest: float
    most: NDArray[np.int64]
    theta: tuple[Real, Real]

    def of(self, first: int, last: int, begin: int, end: int) -> NDArray[np.int64]:
        """`[last − first, K, p]` of records `begin` to `end`."""
        part = slice(begin, end)
        ends = np.clip(self.block.offsets[first : last + 1], begin, end) - begin
        sizes = ends[1:] - ends[:-1]
        x = self.block.features[part].astype(np.float64, copy=False)
        lengths = self.block.row_squares[part]
        if np.isinf(lengths).any():  # rows that nobody prepared
            x = cut_rows(x)
            lengths = squares(x * 2.0**ROW_BITS)
        most = self.most[first:last]
        alike = bool((sizes == sizes[0]).all() and (most == most[0]).all())
        of_record = most[:1] if alike else np.repeat(most, sizes)
        margins = self.margins(x, slice(first, last), sizes)
        slopes = self.slopes(margins, self.block.labels[part], lengths, of_record)
        if alike:
            shape = len(sizes), int(sizes[0]), -1
            return outer_sum(slopes.reshape(shape), x.reshape(shape), int(most[0]) << ROW_BITS)
        parts = zip(most.tolist(), ends[:-1], ends[1:], strict=True)
        return np.stack([outer_sum(slopes[a:b], x[a:b], s << ROW_BITS) for s, a, b in parts])

    def margins(self, x: Real, parties: slice, sizes: NDArray[np.int64]) -> Real:
        """`[n]`, or `[n, K]`."""
        (whole, units), alone = self.theta, self.model.loss.outputs == 1
        if len(whole) > 1:
            own, unit = (np.repeat(each[parties], sizes, axis=0) for each in (whole, units))
            several: Real = np.vecdot(x[:, None], own) * unit[:, None]
            return several[:, 0] if alone else several
        # Measured: one dot product a row streams fresh memory twice as fast as a product with it.
        found: Real = np.vecdot(x, whole[0, 0]) if alone else x @ whole[0].T
        found *= units[0]
        return found

    def slopes(
        self, margins: Real, labels: NDArray[Any], lengths: Real, most: NDArray[np.int64]
    ) -> Real:
        """`[n, K]` in 2^-k of 2^-16, as the rows count them: none longer than S with its row."""
        outputs = self.model.loss.outputs
        slopes = self.model.loss.slope(margins, labels)
        # Room for rounding to whole numbers, and for the test's own caution.
        scale = np.maximum(most - 1 - math.sqrt(outputs) / 2, 0) / self.longest
        if self.clip is not None:
            norms = self.model.loss.slope_norm(slopes) * np.sqrt(lengths) * 2.0**-ROW_BITS
            scale = scale * (self.clip / np.maximum(norms, self.clip))
        found = np.rint(slopes.reshape(len(margins), outputs) * np.reshape(scale, (-1, 1)))
        keep_slopes(found, lengths, np.square(most * 2.0**ROW_BITS))
        found *= 2.0**ROW_BITS
        return found
