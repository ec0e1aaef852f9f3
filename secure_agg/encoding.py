"""Fixed-point encoding: real vectors as integers of the ring Z/2^b, and back.

A contribution x is encoded as `round(2^s · x)` mod 2^b (nearest, ties to even). The encoded vectors
of m parties add up exactly, in any order, inside a ring in which masks cancel. Rounding moves each
coordinate by at most ½ grid unit. A sum with L2 sensitivity Δ therefore has sensitivity `2^s·Δ +
√d` on the grid. The relative *inflation* √d/(2^s·Δ) is charged to the noise (Kairouz et al. 2021,
arXiv:2102.06387, section 4, with nearest instead of randomised rounding).

No sum wraps around. The ring is chosen and checked so that m largest contributions plus the noise's
tail stay below 2^(b−1). NaN, infinities and out-of-range values are refused before any value is
encoded.

    >>> import numpy as np
    >>> grid = FixedPoint(scale_bits=8, ring_bits=16, bound=1.0)
    >>> vectors = grid.encode(np.array([[0.5, -0.25], [0.5, 1.0]]))
    >>> total = np.add.reduce(vectors, axis=0, dtype=grid.dtype)
    >>> grid.to_float(grid.decode(total)).tolist()
    [1.0, 0.75]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ring = NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.uint64]
"""Array of ring elements; b is its item size in bits."""

_SIGNED = {16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED: dict[int, np.dtype[np.unsignedinteger[Any]]] = {
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}

_PIECE_LENGTH = 32_768  # float64 per piece: the working buffer (256 KiB) stays in cache
ROUNDING_TOLERANCE = 1 + 2.0**-40
"""Factor by which a vector clipped to the bound in floating point may exceed it (an ulp)."""

SCALE_BITS = range(-64, 61)
"""Allowed values of a grid's scale_bits."""


class EncodingError(ValueError):
    """A vector must not be encoded: NaN, infinite, out of range, wrong shape or dtype."""


class RingTooSmall(ValueError):
    """The ring cannot hold the largest possible sum plus the noise's tail."""


def get_ring_dtype(ring_bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the unsigned dtype of Z/2^ring_bits."""
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
        get_ring_dtype(self.ring_bits)
        if self.scale_bits not in SCALE_BITS:
            raise ValueError(f"Expected scale_bits from -64 to 60, got {self.scale_bits!r}.")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ValueError(f"Expected a finite bound > 0, got {self.bound!r}.")
        self.check_capacity(1, 0.0)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """Unsigned dtype of the ring: uint16, uint32 or uint64."""
        return get_ring_dtype(self.ring_bits)

    @property
    def scale(self) -> float:
        """Grid units per unit of the values: 2^s, exactly."""
        return math.ldexp(1.0, self.scale_bits)

    @property
    def max_integer(self) -> int:
        """Largest |integer| that `encode` accepts: ⌈2^s·bound·(1 + 2^−40)⌉."""
        return math.ceil(self.bound * ROUNDING_TOLERANCE * self.scale)

    def compute_inflation(self, sensitivity: float, dimension: int) -> float:
        """Return √d/(2^s·Δ): what rounding adds to the sensitivity Δ, as a fraction of Δ."""
        return math.sqrt(dimension) / (self.scale * sensitivity)

    def check_capacity(self, parties: int, noise_tail_grid: float) -> None:
        """Check that m·largest + noise tail < 2^(b−1).

        Raises:
            RingTooSmall: the sum may wrap around.
            ValueError: an argument is out of range.
        """
        if parties < 1:
            raise ValueError(f"Expected parties >= 1, got {parties}.")
        if not (math.isfinite(noise_tail_grid) and noise_tail_grid >= 0):
            raise ValueError(f"Expected a finite noise tail >= 0, got {noise_tail_grid!r}.")
        limit = 2 ** (self.ring_bits - 1)
        needed = parties * self.max_integer + math.ceil(noise_tail_grid)
        if needed >= limit:
            raise RingTooSmall(
                f"Expected parties × largest + noise tail < 2^{self.ring_bits - 1} = {limit}, got "
                f"{parties} × {self.max_integer} + {noise_tail_grid:.6g} = {needed} "
                f"(ring_bits {self.ring_bits}, scale_bits {self.scale_bits}, bound {self.bound:g})."
            )

    def encode(self, values: NDArray[np.floating]) -> Ring:
        """Return `[B, d]` ring elements `round(2^s·x)` mod 2^b, rounded to nearest, ties to even.

        Raises:
            EncodingError: wrong dtype or shape; or a NaN, infinite or out-of-range entry, with its
                row and coordinate. No entry is encoded then.
        """
        return self.wrap_to_ring(self._round_to_integers(values, self.scale))

    def quantize_fine(self, values: NDArray[np.floating], fine_bits: int) -> NDArray[np.int64]:
        """Return `[B, d]` nearest integers on the finer grid 1/2^(s + h), on which a party adds
        noise.

        h is `fine_bits`. With h = 0 they are the integers that `encode` reduces modulo 2^b.

        Raises:
            EncodingError: as `encode`; or 2^(s + h)·bound is not below 2^62.
        """
        scale = math.ldexp(self.scale, fine_bits)
        if not self.bound * ROUNDING_TOLERANCE * scale < 2**62:
            raise EncodingError(
                f"Expected 2^{self.scale_bits + fine_bits} × {self.bound:g} below 2^62, got "
                f"{self.bound * scale:.3g}. Use a coarser grid."
            )
        return self._round_to_integers(values, scale)

    def _round_to_integers(self, values: NDArray[np.floating], scale: float) -> NDArray[np.int64]:
        """Return `[B, d]` nearest integers of values times `scale`, ties to even."""
        if values.dtype not in (np.float64, np.float32) or values.ndim != 2 or 0 in values.shape:
            raise EncodingError(
                "Expected non-empty float64 or float32 values of shape [B, d], got "
                f"{values.dtype} {values.shape}."
            )
        largest = math.ceil(self.bound * ROUNDING_TOLERANCE * scale)
        integers = np.empty(values.shape, dtype=np.int64)
        source, target = values.reshape(-1), integers.reshape(-1)
        buffer = np.empty(min(_PIECE_LENGTH, source.size))
        for start in range(0, source.size, _PIECE_LENGTH):
            piece = buffer[: min(_PIECE_LENGTH, source.size - start)]
            stop = start + piece.size
            np.multiply(source[start:stop], scale, out=piece, dtype=np.float64)
            # A NaN makes the maximum NaN, and each comparison with NaN is false.
            if not (piece.max() <= largest and piece.min() >= -largest):
                self._refuse(values, largest / scale)
            np.rint(piece, out=piece)
            target[start:stop] = piece
        return integers

    def wrap_to_ring(self, integers: NDArray[np.int64]) -> Ring:
        """Reduce integers modulo 2^b to ring elements of the same shape."""
        return integers.view(np.uint64).astype(self.dtype, copy=False)

    def _refuse(self, values: NDArray[np.floating], largest: float) -> None:
        bad = ~(np.abs(values) <= largest)
        row, coordinate = (int(i) for i in np.argwhere(bad)[0])
        # Never put the value into the message: it is private to the party.
        what = "a larger one" if math.isfinite(values[row, coordinate]) else "a non-finite one"
        raise EncodingError(
            f"Expected finite entries with |entry| <= {self.bound:g}, got {what} in row {row}, "
            f"coordinate {coordinate} ({int(bad.sum())} of {values.size} entries refused)."
        )

    def decode(self, total: Ring) -> NDArray[np.int64]:
        """Return the integer sum: the representatives in [−2^(b−1), 2^(b−1))."""
        if total.dtype != self.dtype:
            raise EncodingError(f"Expected a total of {self.dtype}, got {total.dtype}.")
        return total.view(_SIGNED[self.ring_bits]).astype(np.int64)

    def to_float(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Convert grid units to values: `2^−s · integers`, same shape."""
        return np.multiply(integers, 1 / self.scale, dtype=np.float64)
