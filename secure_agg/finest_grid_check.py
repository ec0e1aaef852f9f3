"""Check that a sum's grid is the finest one that cannot wrap around."""

from __future__ import annotations

from dataclasses import replace

from parley.secure_agg.encoding import FixedPoint

# Beyond σ = 2^40 grid units a float64 is too coarse to sample the noise from (privacy
# specification, section 3). With tails of up to 8σ that is 2^43.
MAX_NOISE_TAIL = 2.0**43


def is_finest(grid: FixedPoint, parties: int, noise_tail_grid: float) -> bool:
    """Return whether a grid twice as fine would not fit the ring, by the rule of `choose_grid`.

    `noise_tail_grid` is in units of this grid. On a grid twice as fine the tail is at most twice
    that.
    """
    tail = 2 * noise_tail_grid
    try:
        finer = replace(grid, scale_bits=grid.scale_bits + 1)
        finer.check_capacity(parties, tail)
    except ValueError:
        return True
    return tail > MAX_NOISE_TAIL
