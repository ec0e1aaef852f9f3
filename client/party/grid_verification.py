"""Check the grid on which contributions are rounded, by `client.contract.ring_noise_tail`."""

from __future__ import annotations

from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.ring_noise_tail import TAIL_PROBABILITY
from parley.secure_agg.finest_grid_check import is_finest

MAX_INFLATION = 0.1
"""Maximum fraction of the sensitivity that a party lets rounding add."""
_WHOLE = 1 + 1e-6


def check_grid(
    plan: ReleasePlan, *, entry: float, sensitivity: float, scale_bits: int | None = None
) -> None:
    """Derive the plan's grid by its own rule and compare it with the plan.

    Args:
        sensitivity: Δ of the sum as the party derived it. If all noise is inside the party: √d
            standard deviations of a step's noise.
        scale_bits: scale of the algorithm's own grid, if it has one.

    Raises:
        Declined: grid: room for more than any contribution, a coarser grid than the ring holds, or
            a ring that holds no grid that is fine enough.
    """
    grid = plan.encoding
    heaviest = plan.parties if plan.weights == "size" else 1
    if grid.bound > entry * heaviest * _WHOLE:
        expected = f"Expected a bound of at most {entry * heaviest:g}"
        raise Declined(Reason.GRID, f"{expected}, got {grid.bound:g}.")
    split = plan.shared_guarantee
    if split is not None:
        finest = True
    elif scale_bits is None:
        finest = is_finest(grid, plan.parties, plan.compute_noise_tail(TAIL_PROBABILITY))
    else:
        finest = grid.scale_bits >= scale_bits
    if not finest:
        expected = f"Expected the finest grid of a ring of {grid.ring_bits} bits"
        got = f"{grid.scale_bits} bits of scale"
        raise Declined(Reason.GRID, f"{expected}, got {got}: one more fits.")
    unit = 1.0 if split is None or split.shares is None else split.shares.ring_unit
    inflation = grid.compute_inflation(sensitivity, plan.dimension) / unit
    if not inflation <= MAX_INFLATION:  # NaN is not
        expected = f"Expected rounding to add at most {MAX_INFLATION:g} of the sensitivity"
        why = "secure-aggregation.ring-bits = 64 has room for a finer grid"
        raise Declined(Reason.GRID, f"{expected}, got {inflation:.3g}: {why}.")
