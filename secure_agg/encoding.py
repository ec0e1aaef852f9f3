r"""Real vectors as integers of the ring Z/2^b, and back.

A contribution x is encoded as `round(2^s · x)` mod 2^b (nearest, ties to even), so that m of them
add up exactly, in any order, inside a ring in which masks cancel. Rounding moves every coordinate
by at most ½ grid unit, so a sum with L2 sensitivity Δ has `2^s·Δ + √d` on the grid: the relative
*inflation* √d/(2^s·Δ), charged to the noise (Kairouz et al. 2021, arXiv:2102.06387, section 4,
with nearest instead of randomised rounding).

Nothing wraps around: the ring is chosen, and checked, so that m largest contributions and the
noise's tail stay below 2^(b−1); NaN, infinities and out-of-range values are refused before
anything is encoded.

    >>> import numpy as np
    >>> grid = FixedPoint(scale_bits=8, ring_bits=16, bound=1.0)
    >>> vectors = grid.encode(np.array([[0.5, -0.25], [0.5, 1.0]]))
    >>> total = np.add.reduce(vectors, axis=0, dtype=grid.dtype)
    >>> grid.to_float(grid.decode(total)).tolist()
    [1.0, 0.75]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ring = NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.uint64]
"""An array of ring elements; b is its item size in bits."""

_SIGNED = {16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED: dict[int, np.dtype[np.unsignedinteger[Any]]] = {
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}

_PIECE = 32_768  # float64 per piece: the working buffer (256 KiB) stays in cache
_SLACK = 1 + 2.0**-40  # a vector clipped to the bound in floating point may exceed it by an ulp
# Beyond σ = 2^40 grid units a float64 is too coarse to draw the noise from (privacy
# specification, section 3); with tails of up to 8σ that is 2^43.
_LARGEST_NOISE_TAIL = 2.0**43
_SCALE_BITS = range(-64, 61)
_MOST_INFLATION = 1e-3  # of √d/(2^s·Δ) for which the 32-bit ring is kept


class EncodingError(ValueError):
    """A vector that must not be encoded: NaN, infinite, out of range, wrong shape or dtype."""


class RingTooSmall(ValueError):
    """The ring cannot hold the largest possible sum plus the noise's tail."""


def ring_dtype(ring_bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The unsigned dtype of Z/2^ring_bits."""
    if ring_bits not in _UNSIGNED:
        raise ValueError(f"Expected ring_bits 16, 32 or 64, got {ring_bits!r}.")
    return _UNSIGNED[ring_bits]


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """A grid of step 2^−scale_bits inside the ring Z/2^ring_bits.

    Attributes:
        scale_bits: s; a value x becomes round(2^s·x). −64 to 60.
        ring_bits: b; 16, 32 or 64.
        bound: largest |entry| of one party's contribution, in the values' own unit.

    Raises:
        RingTooSmall: a single contribution does not fit.
        ValueError: an attribute is out of range.
    """

    scale_bits: int
    ring_bits: int
    bound: float

    def __post_init__(self) -> None:
        ring_dtype(self.ring_bits)
        if self.scale_bits not in _SCALE_BITS:
            raise ValueError(f"Expected scale_bits from -64 to 60, got {self.scale_bits!r}.")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ValueError(f"Expected a finite bound > 0, got {self.bound!r}.")
        self.check_capacity(1, 0.0)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """uint16, uint32 or uint64."""
        return ring_dtype(self.ring_bits)

    @property
    def scale(self) -> float:
        """2^s, exactly."""
        return math.ldexp(1.0, self.scale_bits)

    @property
    def largest(self) -> int:
        """Largest |integer| that `encode` lets through: ⌈2^s·bound⌉ (bound + 2^−40 of it)."""
        return math.ceil(self.bound * _SLACK * self.scale)

    def inflation(self, sensitivity: float, dimension: int) -> float:
        """√d/(2^s·Δ): what rounding adds to the sensitivity Δ, as a fraction of it."""
        return math.sqrt(dimension) / (self.scale * sensitivity)

    def check_capacity(self, parties: int, noise_tail_grid: float) -> None:
        """Check that m·largest + noise tail < 2^(b−1)."""
        if parties < 1:
            raise ValueError(f"Expected parties >= 1, got {parties}.")
        if not (math.isfinite(noise_tail_grid) and noise_tail_grid >= 0):
            raise ValueError(f"Expected a finite noise tail >= 0, got {noise_tail_grid!r}.")
        limit = 2 ** (self.ring_bits - 1)
        needed = parties * self.largest + math.ceil(noise_tail_grid)
        if needed >= limit:
            raise RingTooSmall(
                f"Expected parties × largest + noise tail < 2^{self.ring_bits - 1} = {limit}, got "
                f"{parties} × {self.largest} + {noise_tail_grid:.6g} = {needed} "
                f"(ring_bits {self.ring_bits}, scale_bits {self.scale_bits}, bound {self.bound:g})."
            )

    def finest(self, parties: int, noise_tail_grid: float) -> bool:
        """Whether a grid twice as fine would not fit the ring, by the rule of `fit`.

        `noise_tail_grid` is in units of this grid; on one twice as fine it is at most twice that.
        """
        tail = 2 * noise_tail_grid
        try:
            finer = replace(self, scale_bits=self.scale_bits + 1)
            finer.check_capacity(parties, tail)
        except ValueError:
            return True
        return tail > _LARGEST_NOISE_TAIL

    def encode(self, values: NDArray[np.floating]) -> Ring:
        """Round to the grid: `[B, d]` of `round(2^s·x)` mod 2^b, nearest, ties to even.

        Raises:
            EncodingError: wrong dtype or shape; NaN, infinite or out of range, with its row and
                coordinate. Nothing is encoded then.
        """
        return self.wrapped(self._integers(values, self.scale))

    def fine(self, values: NDArray[np.floating], fine_bits: int) -> NDArray[np.int64]:
        """`[B, d]` nearest integers on a grid of 1/2^(s + h), where a party adds noise.

        With h = 0 they are those that `encode` takes modulo 2^b.

        Raises:
            EncodingError: as `encode`; or 2^(s + h)·bound is not below 2^62.
        """
        scale = math.ldexp(self.scale, fine_bits)
        if not self.bound * _SLACK * scale < 2**62:
            raise EncodingError(
                f"Expected 2^{self.scale_bits + fine_bits} × {self.bound:g} below 2^62, got "
                f"{self.bound * scale:.3g}: a coarser grid fits."
            )
        return self._integers(values, scale)

    def _integers(self, values: NDArray[np.floating], scale: float) -> NDArray[np.int64]:
        """`[B, d]` nearest integers of values times `scale`, ties to even."""
        if values.dtype not in (np.float64, np.float32) or values.ndim != 2 or 0 in values.shape:
            raise EncodingError(
                "Expected float64 or float32 values of shape [B, d], none empty, got "
                f"{values.dtype} {values.shape}."
            )
        largest = math.ceil(self.bound * _SLACK * scale)
        integers = np.empty(values.shape, dtype=np.int64)
        source, target = values.reshape(-1), integers.reshape(-1)
        buffer = np.empty(min(_PIECE, source.size))
        for start in range(0, source.size, _PIECE):
            piece = buffer[: min(_PIECE, source.size - start)]
            stop = start + piece.size
            np.multiply(source[start:stop], scale, out=piece, dtype=np.float64)
            # A NaN makes the maximum NaN, and every comparison with NaN is false.
            if not (piece.max() <= largest and piece.min() >= -largest):
                self._refuse(values, largest / scale)
            np.rint(piece, out=piece)
            target[start:stop] = piece
        return integers

    def wrapped(self, integers: NDArray[np.int64]) -> Ring:
        """Integers modulo 2^b: elements of the ring, shape kept."""
        return integers.view(np.uint64).astype(self.dtype, copy=False)

    def _refuse(self, values: NDArray[np.floating], largest: float) -> None:
        bad = ~(np.abs(values) <= largest)
        row, coordinate = (int(i) for i in np.argwhere(bad)[0])
        # What it is stays with the party.
        what = "a larger one" if math.isfinite(values[row, coordinate]) else "one that is not"
        raise EncodingError(
            f"Expected finite entries with |entry| <= {self.bound:g}, got {what} in row {row}, "
            f"coordinate {coordinate} ({int(bad.sum())} of {values.size} entries refused)."
        )

    def decode(self, total: Ring) -> NDArray[np.int64]:
        """The integer sum: representatives in [−2^(b−1), 2^(b−1))."""
        if total.dtype != self.dtype:
            raise EncodingError(f"Expected a total of {self.dtype}, got {total.dtype}.")
        return total.view(_SIGNED[self.ring_bits]).astype(np.int64)

    def to_float(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Grid units to values: `2^−s · integers`, shape kept."""
        return np.multiply(integers, 1 / self.scale, dtype=np.float64)

    @classmethod
    def fit(
        cls,
        *,
        bound: float,
        parties: int,
        dimension: int,
        noise_tail: Callable[[int], float],
        sensitivity: float | None,
        ring_bits: int | None = None,
        scale_bits: int | None = None,
    ) -> FixedPoint:
        """The finest grid that cannot wrap around.

        Args:
            noise_tail: from scale_bits to a bound on |noise| per coordinate in grid units, not
                decreasing; `lambda s: 0.0` without noise.
            sensitivity: Δ, L2, of the sum, in the values' unit; None where no noise is calibrated.
            ring_bits: None: 32, or 64 where √d/(2^s·Δ) would be above 10⁻³. A ring or a scale given
                is taken as it is: its inflation is charged, not refused.

        Raises:
            RingTooSmall: no scale fits, the one given does not, or no ring keeps the inflation.
        """
        if dimension < 1:
            raise ValueError(f"Expected dimension >= 1, got {dimension}.")

        def grid(bits: int) -> FixedPoint:
            return cls._finest(bits, bound, parties, noise_tail, scale_bits)

        def inflation(found: FixedPoint) -> float:
            return 0.0 if sensitivity is None else found.inflation(sensitivity, dimension)

        if ring_bits is not None:
            return grid(ring_bits)
        with suppress(RingTooSmall):
            small = grid(32)
            if inflation(small) <= _MOST_INFLATION:
                return small
        large = grid(64)
        if inflation(large) <= _MOST_INFLATION or scale_bits is not None:
            return large
        raise RingTooSmall(
            f"Expected a rounding inflation √d/(2^s·Δ) <= {_MOST_INFLATION:g}, got "
            f"{inflation(large):.3g} (d {dimension}, Δ {sensitivity}, scale_bits "
            f"{large.scale_bits} in a ring of 64)."
        )

    @classmethod
    def _finest(
        cls,
        ring_bits: int,
        bound: float,
        parties: int,
        noise_tail: Callable[[int], float],
        scale_bits: int | None,
    ) -> FixedPoint:
        ring_dtype(ring_bits)
        if scale_bits is not None:
            grid = cls(scale_bits=scale_bits, ring_bits=ring_bits, bound=bound)
            grid.check_capacity(parties, noise_tail(scale_bits))
            return grid
        if not (math.isfinite(bound) and bound > 0):
            raise ValueError(f"Expected a finite bound > 0, got {bound!r}.")
        limit = 2.0 ** (ring_bits - 1)
        scale = min(math.floor(math.log2(limit / (parties * bound))), _SCALE_BITS[-1])
        while scale >= _SCALE_BITS[0]:
            tail = noise_tail(scale)
            needed = parties * math.ceil(bound * _SLACK * math.ldexp(1.0, scale)) + math.ceil(tail)
            if needed < limit and tail <= _LARGEST_NOISE_TAIL:
                return cls(scale_bits=scale, ring_bits=ring_bits, bound=bound)
            # One bit of scale at least halves the sum and halves the tail at most (it has a part
            # that does not depend on the scale), so this never steps over a scale that fits.
            excess = max(needed / limit, tail / _LARGEST_NOISE_TAIL)
            scale -= max(1, math.floor(math.log2(excess)))
        raise RingTooSmall(
            f"Expected {parties} contributions of at most {bound:g} and their noise to fit "
            f"2^{ring_bits - 1} = {limit:g} at some scale_bits >= {_SCALE_BITS[0]}, none does."
        )
