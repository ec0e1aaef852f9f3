"""How far one replaced record can move certified local optima: Δ₂ of the sum over the parties.

m parties, party j holds n_j records, n₍₁₎ is the least n_j or a public lower bound of it, n̄ = N/m.
The loss is convex and G-Lipschitz. What is summed is w_j·v_j with w_j = 1 ("uniform") or n_j/n̄
("size"); the average divides the sum, and so Δ₂, by m. Neighbours: replace-one record, public
counts as they are. Noise goes on the sum, so that its scale does not depend on how many parties
survive. Every Δ₂ is rounded up.

The local optimum of the mean loss + (λ/2)‖θ‖² moves the sum by 2G/(n₍₁₎λ), or 2G/(n̄λ) (Chaudhuri,
Monteleoni & Sarwate 2011, Corollary 8). λ is that of ½λ‖θ‖²: code with λ‖θ‖² has twice this λ. What
a sum over records is moved by, the set of what one adds says (`parley.privacy.kernel.sets`).

    >>> output_sensitivity(lipschitz=1.0, lambda_=0.01, parties=100, min_records=500)
    0.4
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from parley.privacy.accounting.rounding import check_positive, exact, round_up

Weights = Literal["uniform", "size"]


def output_sensitivity(
    *,
    lipschitz: float,
    lambda_: float,
    parties: int,
    min_records: int,
    total_records: int | None = None,
    weights: Weights = "uniform",
    relative_tolerance: float = 0.0,
) -> float:
    """Δ₂ of certified local optima: 2G/(n₍₁₎λ), or 2G/(n̄λ), and what the solver's error adds.

    ‖∇J_j(θ̂)‖ ≤ τ_j puts θ̂ within τ_j/λ of the optimum, twice that between neighbours.

    Args:
        relative_tolerance: κ, where every party certifies τ_j ≤ κG/n_j: Δ₂ grows by 1 + κ.
    """
    records = _records(parties, min_records, total_records, weights)
    check_positive("lipschitz", lipschitz)
    check_positive("lambda_", lambda_)
    if not 0 <= relative_tolerance < math.inf:
        raise ValueError(f"Expected finite relative_tolerance ≥ 0, got {relative_tolerance}.")
    ideal = 2 * exact(lipschitz) / (records * exact(lambda_))
    return round_up(ideal * (1 + exact(relative_tolerance)))


def _records(
    parties: int, min_records: int, total_records: int | None, weights: Weights
) -> Fraction:
    """The n in 2G/n: n₍₁₎, or n̄ = N/m."""
    for name, value in (("parties", parties), ("min_records", min_records)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"Expected an integer {name} ≥ 1, got {value!r}.")
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
