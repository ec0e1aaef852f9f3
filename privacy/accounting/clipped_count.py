"""A noisy count of clipped gradients, released beside DP-SGD's noisy sums from the same budget.

Let b_i ∈ [0, 1] say whether record i's gradient g_i was clipped. A step releases
Σ g_i + N(0, (σ_g·C)²I) and Σ (b_i − ½) + N(0, σ_b²) of one Poisson batch. In units of the noise a
record is one vector,

    (g_i/(σ_g·C), (b_i − ½)/σ_b),   of norm ≤ √(1/σ_g² + 1/(2σ_b)²) = 1/σ,

so the pair is one subsampled Gaussian of multiplier σ, as a step without a count is (Andrew,
Thakkar, McMahan & Ramaswamy 2021, arXiv:1905.03871, Theorem 1): adding or removing a record moves
it by 1/σ, replacing one by 2/σ. A share s of 1/σ² goes to the count:

    σ_g = σ/√(1 − s),   2σ_b = σ/√s

Only the total over a release's T steps leaves the party. Its noise is the sum of the steps' own,
N(0, Tσ_b²), and so may be drawn once. Both scales are rounded up.

    >>> gradient_multiplier(4.0, 0.01), count_deviation(4.0, 0.01, 25)
    (4.02015126103685, 200.00000000000003)
"""

from __future__ import annotations

import math
from fractions import Fraction

from parley.privacy.accounting.rounding import check_positive, exact, root_up


def check_share(share: float) -> None:
    """Raise ValueError unless 0 ≤ s < 1."""
    if not 0 <= share < 1:
        raise ValueError(f"Expected 0 ≤ a clipped fraction's share < 1, got {share}.")


def gradient_multiplier(noise_multiplier: float, share: float) -> float:
    """σ_g, of the noise on the clipped sums; σ itself where no count is released."""
    check_share(share)
    if not share:
        return noise_multiplier
    return _above(_larger(noise_multiplier) ** 2 / (1 - _larger(share)))


def count_deviation(noise_multiplier: float, share: float, steps: int) -> float:
    """√T·2σ_b: standard deviation of the noise on Σ (2b_i − 1) over T steps; needs s > 0."""
    check_share(share)
    check_positive("a clipped fraction's share", share)
    return _above(_larger(noise_multiplier) ** 2 * steps / min(exact(share), Fraction(share)))


def _larger(value: float) -> Fraction:
    """The account reads a float as its decimal, the sampler as its binary: the larger counts."""
    return max(exact(value), Fraction(value))


def _above(square: Fraction) -> float:
    return math.nextafter(root_up(square), math.inf)  # as a decimal and as a binary
