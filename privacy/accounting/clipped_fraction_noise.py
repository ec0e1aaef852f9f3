"""Noise of a count of clipped gradients, released next to DP-SGD's noisy sums from one budget."""

from __future__ import annotations

import math
from fractions import Fraction

from parley.privacy.accounting.rounding import check_positive, round_root_up, to_fraction


def check_share(share: float) -> None:
    """Raise ValueError unless 0 ≤ s < 1."""
    if not 0 <= share < 1:
        raise ValueError(f"Expected 0 ≤ a clipped fraction's share < 1, got {share}.")


def compute_gradient_multiplier(noise_multiplier: float, share: float) -> float:
    """Return σ_g of the noise on the clipped sums; σ itself if no count is released."""
    check_share(share)
    if not share:
        return noise_multiplier
    variance = _to_larger_fraction(noise_multiplier) ** 2
    return _round_root_above(variance / (1 - _to_larger_fraction(share)))


def compute_count_deviation(noise_multiplier: float, share: float, steps: int) -> float:
    """Return √T·2σ_b, the deviation of the noise on Σ (2b_i − 1) over T steps; needs s > 0."""
    check_share(share)
    check_positive("a clipped fraction's share", share)
    variance = _to_larger_fraction(noise_multiplier) ** 2 * steps
    return _round_root_above(variance / min(to_fraction(share), Fraction(share)))


def _to_larger_fraction(value: float) -> Fraction:
    """Return the larger of the value's decimal and binary readings.

    The accountant uses the former, the sampler the latter.
    """
    return max(to_fraction(value), Fraction(value))


def _round_root_above(square: Fraction) -> float:
    return math.nextafter(round_root_up(square), math.inf)  # as a decimal and as a binary
