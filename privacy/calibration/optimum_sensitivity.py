"""The ball that contains a certified local optimum, for every value of one of its records.

Party j of m parties holds n_j records; n₍₁₎ is the least n_j or a public lower bound of it, and n̄
= N/m. The loss is convex and G-Lipschitz. The sum is of w_j·v_j with w_j = 1 ("uniform") or n_j/n̄
("size"). Neighbours: replace-one record, with unchanged public counts.

Remove the loss of one record from the objective (1/n) Σ ℓ + (λ/2)‖θ‖², with n unchanged. The
gradient of the rest at the optimum with the record is −∇ℓ/n. By strong convexity that optimum is
within G/(nλ) of the optimum without the record. So w_j·v_j is in a ball of radius G/(n₍₁₎λ), or
G/(n̄λ), about a point that depends only on the other records. A replaced record moves it by at most
the ball's diameter (Chaudhuri, Monteleoni & Sarwate 2011, Corollary 8;
`parley.privacy.sensitivity.bounded_sets`). λ is that of ½λ‖θ‖²: code with λ‖θ‖² has twice this λ.

    >>> compute_optimum_radius(lipschitz=1.0, lambda_=0.01, parties=100, min_records=500)
    Fraction(1, 5)
"""

from __future__ import annotations

import math
from fractions import Fraction

from parley.privacy.accounting.rounding import check_positive, check_whole, to_fraction


def compute_optimum_radius(
    *,
    lipschitz: float,
    lambda_: float,
    parties: int,
    min_records: int,
    total_records: int | None = None,
    weights: str = "uniform",
    relative_tolerance: float = 0.0,
) -> Fraction:
    """Return G(1 + κ)/(n₍₁₎λ) or G(1 + κ)/(n̄λ), the radius for a weighted certified local optimum.

    ‖∇J_j(θ̂)‖ ≤ τ_j puts θ̂ within τ_j/λ of the optimum.

    Args:
        relative_tolerance: κ, if every party certifies τ_j ≤ κG/n_j.
    """
    records = _compute_records(parties, min_records, total_records, weights)
    check_positive("lipschitz", lipschitz)
    check_positive("lambda_", lambda_)
    if not 0 <= relative_tolerance < math.inf:
        raise ValueError(f"Expected finite relative_tolerance ≥ 0, got {relative_tolerance}.")
    gradient = to_fraction(lipschitz) * (1 + to_fraction(relative_tolerance))
    return gradient / (records * to_fraction(lambda_))


def _compute_records(
    parties: int, min_records: int, total_records: int | None, weights: str
) -> Fraction:
    """Return the n in G/n: n₍₁₎, or n̄ = N/m."""
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
