"""Where a certified local optimum lies, whatever one of its records is: in a ball.

m parties, party j holds n_j records, n₍₁₎ is the least n_j or a public lower bound of it, n̄ = N/m.
The loss is convex and G-Lipschitz. What is summed is w_j·v_j with w_j = 1 ("uniform") or n_j/n̄
("size"). Neighbours: replace-one record, public counts as they are.

The objective (1/n) Σ ℓ + (λ/2)‖θ‖² without the loss of one record, n as it is, has a gradient of
−∇ℓ/n at the optimum with it: strong convexity puts that within G/(nλ) of the optimum without it.
So w_j·v_j lies in a ball of radius G/(n₍₁₎λ), or G/(n̄λ), about a point that the other records say,
and a replaced one moves it by no more than the ball's diameter (Chaudhuri, Monteleoni & Sarwate
2011, Corollary 8; `parley.privacy.sensitivity.bounded_sets`). λ is that of ½λ‖θ‖²: code with λ‖θ‖²
has twice this λ.

    >>> compute_optimum_radius(lipschitz=1.0, lambda_=0.01, parties=100, min_records=500)
    Fraction(1, 5)
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from parley.privacy.accounting.rounding import check_positive, check_whole, to_fraction

Weights = Literal["uniform", "size"]


def compute_optimum_radius(
    *,
    lipschitz: float,
    lambda_: float,
    parties: int,
    min_records: int,
    total_records: int | None = None,
    weights: Weights = "uniform",
    relative_tolerance: float = 0.0,
) -> Fraction:
    """G(1 + κ)/(n₍₁₎λ), or G(1 + κ)/(n̄λ): of a certified local optimum, weighted.

    ‖∇J_j(θ̂)‖ ≤ τ_j puts θ̂ within τ_j/λ of the optimum.

    Args:
        relative_tolerance: κ, where every party certifies τ_j ≤ κG/n_j.
    """
    records = _compute_records(parties, min_records, total_records, weights)
    check_positive("lipschitz", lipschitz)
    check_positive("lambda_", lambda_)
    if not 0 <= relative_tolerance < math.inf:
        raise ValueError(f"Expected finite relative_tolerance ≥ 0, got {relative_tolerance}.")
    return (
        to_fraction(lipschitz)
        * (1 + to_fraction(relative_tolerance))
        / (records * to_fraction(lambda_))
    )


def _compute_records(
    parties: int, min_records: int, total_records: int | None, weights: Weights
) -> Fraction:
    """The n in G/n: n₍₁₎, or n̄ = N/m."""
    check_whole("parties", parties)
    check_whole("min_records", min_records)
    if total_records is not None and total_records < parties * min_records:
        raise ValueError(
            f"Expected total_records ≥ parties·min_records = {parties * min_records}, "
            f"got {total_records}."
        )
    if weights == "uniform":
        return Fraction(min_records)
    if weights != "size":
        raise ValueError(f"Expected weights uniform or size, got {weights!r}.")
    if total_records is None:
        raise ValueError("Expected the public total_records for weights by size, got none.")
    return Fraction(total_records, parties)
