"""Choose the grid of a sum: the finest one that cannot wrap around.

A party checks each proposed grid against its own claim and ring. No ε depends on how the grid was
chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from parley.secure_agg.encoding import (
    ROUNDING_TOLERANCE,
    SCALE_BITS,
    FixedPoint,
    RingTooSmall,
    get_ring_dtype,
)
from parley.secure_agg.finest_grid_check import MAX_NOISE_TAIL

_MAX_INFLATION = 1e-3  # largest √d/(2^s·Δ) with which the 32-bit ring is used


def choose_grid(
    *,
    bound: float,
    parties: int,
    dimension: int,
    noise_tail: Callable[[int], float],
    sensitivity: float | None,
    ring_bits: int | None = None,
    scale_bits: int | None = None,
) -> FixedPoint:
    """Return the finest grid that cannot wrap around.

    Args:
        noise_tail: function from scale_bits to a bound on |noise| per coordinate in grid units, not
            decreasing; `lambda s: 0.0` without noise.
        sensitivity: Δ, the L2 sensitivity of the sum, in the values' unit; None if no noise is
            calibrated.
        ring_bits: None: 32, or 64 if √d/(2^s·Δ) would exceed 10⁻³. An explicit ring is used as it
            is: its inflation is charged, not refused.
        scale_bits: None: the finest that fits. An explicit scale is used as it is, like a ring.

    Raises:
        RingTooSmall: no scale fits, the explicit scale does not fit, or the inflation is too large
            in each ring.
    """
    if dimension < 1:
        raise ValueError(f"Expected dimension >= 1, got {dimension}.")

    def grid(bits: int) -> FixedPoint:
        return _choose_finest_grid(bits, bound, parties, noise_tail, scale_bits)

    def inflation(found: FixedPoint) -> float:
        return 0.0 if sensitivity is None else found.compute_inflation(sensitivity, dimension)

    if ring_bits is not None:
        return grid(ring_bits)
    with suppress(RingTooSmall):
        small = grid(32)
        if inflation(small) <= _MAX_INFLATION:
            return small
    large = grid(64)
    if inflation(large) <= _MAX_INFLATION or scale_bits is not None:
        return large
    raise RingTooSmall(
        f"Expected a rounding inflation √d/(2^s·Δ) <= {_MAX_INFLATION:g}, got "
        f"{inflation(large):.3g} (d {dimension}, Δ {sensitivity}, scale_bits "
        f"{large.scale_bits} in a ring of 64)."
    )


def _choose_finest_grid(
    ring_bits: int,
    bound: float,
    parties: int,
    noise_tail: Callable[[int], float],
    scale_bits: int | None,
) -> FixedPoint:
    get_ring_dtype(ring_bits)
    if scale_bits is not None:
        grid = FixedPoint(scale_bits=scale_bits, ring_bits=ring_bits, bound=bound)
        grid.check_capacity(parties, noise_tail(scale_bits))
        return grid
    if not (math.isfinite(bound) and bound > 0):
        raise ValueError(f"Expected a finite bound > 0, got {bound!r}.")
    limit = 2.0 ** (ring_bits - 1)
    scale = min(math.floor(math.log2(limit / (parties * bound))), SCALE_BITS[-1])
    while scale >= SCALE_BITS[0]:
        tail = noise_tail(scale)
        largest = math.ceil(bound * ROUNDING_TOLERANCE * math.ldexp(1.0, scale))
        needed = parties * largest + math.ceil(tail)
        if needed < limit and tail <= MAX_NOISE_TAIL:
            return FixedPoint(scale_bits=scale, ring_bits=ring_bits, bound=bound)
        # One bit of scale at least halves the sum. It at most halves the tail, part of which does
        # not depend on the scale. So this never skips a scale that fits.
        excess = max(needed / limit, tail / MAX_NOISE_TAIL)
        scale -= max(1, math.floor(math.log2(excess)))
    raise RingTooSmall(
        f"Expected {parties} contributions of at most {bound:g} and their noise to fit "
        f"2^{ring_bits - 1} = {limit:g} at some scale_bits >= {SCALE_BITS[0]}, but no scale fits."
    )
