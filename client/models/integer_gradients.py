"""Sums of a linear model's gradients in whole numbers: each record's part is exact.

A record's gradient is slope(θ·x)·xᵀ. Its slope is a function of that record, θ and public numbers,
computed by arithmetic on that record only. The two products around it are exact. The result
therefore does not depend on order, other records, blocks, threads or the library's kernel:

| | whole numbers, times | such that |
|---|---|---|
| row x | 2^-16, once, when rows are prepared | ‖x‖ ≤ 2^16; a longer one adds nothing |
| θ, once per round | a power of two that follows from ‖θ‖∞ | ‖θ‖·2^16 < 2^53, as each part of θ·x |
| slope s | 2^-k (`SlopeGrid`) | ‖s‖·‖x‖ ≤ S·2^16, checked on the numbers |
| Σ s xᵀ | 2^-(k + 16) | summed as whole numbers of 64 bits |

What a record adds is thus in the ball of radius S·2^16, for any θ, x and loss. The factors by which
its slope was scaled and clipped do not matter. A θ that is not finite, or above 2^1000, gives
zeros.

    >>> from parley.client.models.logistic_loss import LogisticLoss
    >>> rows = np.array([[0.5, 0.0], [0.0, 0.75]])
    >>> block = PartyBlock(features=rows, labels=np.array([1.0, -1.0]), offsets=np.array([0, 2]))
    >>> model = LinearModel(loss=LogisticLoss(), features=2)
    >>> compute_gradients(model, np.zeros(2), block).round(6).tolist()
    [[-0.125, 0.1875]]
"""

from __future__ import annotations

import itertools
import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import ROW_BITS, PartyBlock
from parley.client.data.threaded_chunks import (
    CHUNK_BYTES,
    compute_chunk_ranges,
    compute_row_ranges,
    map_chunks,
)
from parley.client.models.linear_models import LinearModel
from parley.client.models.row_quantization import quantize_rows
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.sensitivity.bounded_sets import Set
from parley.privacy.sensitivity.exact_row_arithmetic import round_slopes, sum_outer

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows

Real = NDArray[np.float64]

_SUM_BITS: Final = 52
"""Maximum bits of a party's sum, so that it is a float64."""

MAX_RECORDS: Final = 1 << 28
"""Maximum records of a party if their number is private: the sum of that many has 63 bits."""


@dataclass(frozen=True, kw_only=True)
class SlopeGrid:
    """Grid of slopes that are already divided by a number of records.

    Attributes:
        max_slope: G, or the C that gradients are clipped to.
        max_entry: entries of a party's sum are clamped to ± this. Clamping never moves two sums
            further apart.
        bits: k; slopes are whole numbers of 2^-k.
    """

    max_slope: float
    max_entry: float
    bits: int

    @classmethod
    def choose(
        cls, max_slope: float, *, max_weight: float = 1.0, private: int | None = None
    ) -> SlopeGrid:
        """Return the finest grid on which sums of gradients keep 52 bits.

        Args:
            max_weight: largest ratio of a party's number of records to the number that it is
                divided by.
            private: n, if a party's number is private and its sum is divided by n.
        """
        largest = max_slope * max_weight
        bits = _SUM_BITS - ROW_BITS - math.frexp(largest)[1]
        if private is not None:  # S < 2^18: `MAX_RECORDS` of 2^34 each
            bits = min(bits, 18 - math.frexp(max_slope / private)[1])
        return cls(max_slope=max_slope, max_entry=largest, bits=bits)

    @property
    def sum_bits(self) -> int:
        """Grid bits of the sums, k + 16."""
        return self.bits + ROW_BITS

    def compute_max_slope(self, records: Fraction | int) -> int:
        """Return S = ⌊2^k·G/n⌋, the maximum slope of a row of length 1, divided by n records."""
        return math.floor(to_fraction(self.max_slope) * Fraction(2) ** self.bits / records)

    def build_ball(self, dimension: int, records: Fraction | int) -> Set:
        """Build the ball of radius S·2^16 that contains a record's gradient."""
        return Set.ball(dimension, squared=(self.compute_max_slope(records) << ROW_BITS) ** 2)


def compute_gradients(
    model: LinearModel,
    theta: Real,
    block: PartyBlock,
    clip: float | None = None,
    *,
    divisor: int = 1,
    grid: SlopeGrid | None = None,
    records: Fraction | int | None = None,
) -> Real:
    """Compute `[B, d]` each party's sum of its records' gradients of the data loss, divided by n.

    Args:
        theta: `[d]`, or `[B, d]` with one model per party.
        clip: C; each record's gradient is scaled down to L2 norm ≤ C before the sum.
        divisor: divisor of each record's gradient, before it is clipped.
        grid: None: the grid of means.
        records: n; None: each party's own number, which is public then.

    Returns:
        Multiples of 2^-`grid.sum_bits`, of at most 52 bits.
    """
    each = np.atleast_2d(theta)
    if block.features.shape[1] != model.features or each.shape not in (
        (1, model.dimension),
        (block.parties, model.dimension),
    ):
        expected = f"rows of {model.features} features and theta of {model.dimension} entries"
        raise ValueError(f"Expected {expected}, got {block.features.shape} and {theta.shape}.")
    if clip is not None and not clip > 0:
        raise ValueError(f"Expected clip > 0, got {clip}.")
    grid = grid or SlopeGrid.choose(model.lipschitz if clip is None else clip)
    totals = np.zeros((block.parties, model.loss.outputs, model.features), np.int64)
    counts, which = np.unique(block.sizes, return_inverse=True)
    with np.errstate(all="ignore"):  # values that are not finite are dropped
        if np.isinf(block.row_squares).any():  # rows that were not prepared
            cut = quantize_rows(block.dense_features)
            block = PartyBlock(features=cut, labels=block.labels, offsets=block.offsets)
        sums = _GradientSums(
            model=model,
            block=block,
            clip=clip,
            divisor=divisor,
            max_slope=grid.max_slope,
            max_slopes=np.array([grid.compute_max_slope(records or n) for n in counts.tolist()])[
                which
            ],
            theta=_quantize_theta(each.reshape(-1, *totals.shape[1:])),
        )
        pieces, one_at_a_time = _split_pieces(block), threading.Lock()

        def add(at: int, _: int) -> None:
            first, last, *part = pieces[at]
            found = sums.compute(first, last, *part)
            with one_at_a_time:
                totals[first:last] += found

        map_chunks(add, [(at, at + 1) for at in range(len(pieces))])
    limit = math.floor(to_fraction(grid.max_entry) * Fraction(2) ** grid.sum_bits)
    values = totals.view(np.float64)  # in place: fresh memory costs more than all of this
    for rows in itertools.starmap(slice, compute_row_ranges(values)):
        np.multiply(np.clip(totals[rows], -limit, limit), 2.0**-grid.sum_bits, out=values[rows])
    return values.reshape(block.parties, -1)


def _quantize_theta(theta: Real) -> Real:
    """Return `[T, K, p]` as whole numbers of a power of two, with rows no longer than 2^36 of them.

    NaN if an entry is not finite, or so large that a sum could overflow.
    """
    known = (np.abs(theta) < 2.0**1000).all(axis=(1, 2), keepdims=True)
    exponents = np.frexp(np.abs(theta).max(axis=(1, 2), keepdims=True))[1]
    bits = 36 - ((theta.shape[2] - 1).bit_length() + 1) // 2  # 2^36 ≥ √p·2^bits
    step = bits - np.maximum(exponents, -900)  # products with rows do not underflow
    return np.where(known, np.ldexp(np.rint(np.ldexp(theta, step)), -step), np.nan)


def _split_pieces(block: PartyBlock) -> list[tuple[int, int, int, int]]:
    """Split the block into pieces that stay in cache: (first, last + 1) parties, (begin, end)
    records.

    A large party is split into several pieces.
    """
    rows = max(2 * CHUNK_BYTES // (8 * block.features.shape[1]), 1)
    pieces = []
    for first, last in compute_chunk_ranges(block.offsets, rows, block.uniform_size):
        begin, end = int(block.offsets[first]), int(block.offsets[last])
        step = rows if last == first + 1 else end - begin
        pieces += [(first, last, at, min(at + step, end)) for at in range(begin, end, step)]
    return pieces


def _build_factor(rows: FeatureRows, *, sparse: bool) -> Any:
    """Return rows in double precision, as a sparse matrix if they are sparse and may be.

    Both give the same bits: all sums are exact. For pieces of many parties, dense rows are faster.
    """
    if isinstance(rows, np.ndarray) or not sparse:
        return rows.astype(np.float64, copy=False)
    return rows.to_csr()


@dataclass(frozen=True, kw_only=True)
class _GradientSums:
    """Sums over pieces of a block.

    Attributes:
        max_slope: G.
        max_slopes: `[B]` S, a slope of length G.
        theta: `[T, K, p]`, T = 1 or B.
    """

    model: LinearModel
    block: PartyBlock
    clip: float | None
    divisor: int
    max_slope: float
    max_slopes: NDArray[np.int64]
    theta: Real

    def compute(self, first: int, last: int, begin: int, end: int) -> NDArray[np.int64]:
        """Return `[last − first, K, p]` sums over records `begin` to `end`."""
        part, alone = slice(begin, end), last == first + 1
        x = _build_factor(self.block.features[part], sparse=alone)
        alike = alone or self.block.uniform_size is not None
        own: Any = slice(first, first + 1)  # each record's party, or one party for all of them
        if not alike or (len(self.theta) > 1 and not alone):
            own = np.repeat(np.arange(first, last), self.block.sizes[first:last])
        lengths = self.block.row_squares[part]
        margins = self.compute_margins(x, own)
        slopes = self.compute_slopes(margins, self.block.labels[part], lengths, own)
        if not isinstance(x, np.ndarray):
            return sum_outer(slopes, x, int(self.max_slopes[first]) << ROW_BITS)[None]
        if alike:
            shape = (last - first, (end - begin) // (last - first), -1)
            length = self.max_slopes[first]
            return sum_outer(slopes.reshape(shape), x.reshape(shape), int(length) << ROW_BITS)
        ends = self.block.offsets[first : last + 1] - begin
        parts = zip(self.max_slopes[first:last].tolist(), ends[:-1], ends[1:], strict=True)
        return np.stack([sum_outer(slopes[a:b], x[a:b], s << ROW_BITS) for s, a, b in parts])

    def compute_margins(self, x: Any, own: Any) -> Real:
        """Return `[n]` or `[n, K]` margins."""
        one = self.model.loss.outputs == 1
        if len(self.theta) > 1 and isinstance(x, np.ndarray):
            several: Real = np.vecdot(x[:, None], self.theta[own])
            return several[:, 0] if one else several
        theta = self.theta[own][0] if len(self.theta) > 1 else self.theta[0]
        # Measured: one dot product per row streams fresh memory twice as fast as a matrix product.
        if one and isinstance(x, np.ndarray):
            return np.asarray(np.vecdot(x, theta[0]))
        return np.asarray(x @ (theta[0] if one else theta.T))

    @cached_property
    def scale(self) -> Real:
        """`[B]` factor that turns a slope into whole numbers."""
        # Margin for rounding to whole numbers, and for the safety margin of the check.
        room = 1 + math.sqrt(self.model.loss.outputs) / 2
        return np.asarray(np.maximum(self.max_slopes - room, 0) / self.max_slope / self.divisor)

    @cached_property
    def squared(self) -> Real:
        """`[B]` (S·2^16)², the maximum square of a slope times its row."""
        return np.asarray(np.square(self.max_slopes * 2.0**ROW_BITS))

    def compute_slopes(self, margins: Real, labels: NDArray[Any], lengths: Real, own: Any) -> Real:
        """Return `[n, K]` slopes in 2^-k of 2^-16, like the rows; none exceeds S with its row."""
        slopes, scale = self.model.loss.compute_slopes(margins, labels), self.scale[own]
        if self.clip is not None:
            unit = 2.0**-ROW_BITS / self.divisor
            norms = self.model.loss.compute_slope_norms(slopes) * np.sqrt(lengths) * unit
            scale = scale * (self.clip / np.maximum(norms, self.clip))
        scaled = slopes.reshape(len(margins), -1) * scale[:, None]
        found = round_slopes(scaled, lengths, self.squared[own])
        found *= 2.0**ROW_BITS
        return found
