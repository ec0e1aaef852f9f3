"""How far one replaced record can move what a round releases: Δ₂ of the sum and of the average.

m parties, party j holds n_j records, n₍₁₎ is the least n_j or a public lower bound of it, n̄ = N/m.
The loss is convex and G-Lipschitz. What is summed is w_j·v_j with w_j = 1 ("uniform") or n_j/n̄
("size"); the average divides the sum by m. Neighbours: replace-one record, public counts as they
are. Noise goes on the sum, so that its scale does not depend on how many parties survive.

- gradient of the mean loss: 2G/n₍₁₎, or 2G/n̄ (clipped per record to C: G = C)
- local optimum of the mean loss + (λ/2)‖θ‖²: 2G/(n₍₁₎λ), or 2G/(n̄λ) (Chaudhuri, Monteleoni &
  Sarwate 2011, Corollary 8). λ is that of ½λ‖θ‖²: code with λ‖θ‖² has twice this λ.

    >>> gradient_sensitivity(lipschitz=1.0, parties=100, min_records=500)
    Sensitivity(total=0.004, average=4e-05)
    >>> output_sensitivity(lipschitz=1.0, lambda_=0.01, parties=100, min_records=500)
    Sensitivity(total=0.4, average=0.004)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from parley.privacy.accounting.rounding import check_positive, exact, round_up

Weights = Literal["uniform", "size"]


@dataclass(frozen=True)
class Sensitivity:
    """L2, replace-one record, rounded up.

    Attributes:
        total: Δ₂ of the weighted sum over the parties.
        average: Δ₂ of that sum divided by m.
    """

    total: float
    average: float


def gradient_sensitivity(
    *,
    lipschitz: float,
    parties: int,
    min_records: int,
    total_records: int | None = None,
    weights: Weights = "uniform",
) -> Sensitivity:
    """Δ₂ of the parties' mean gradients: 2G/n₍₁₎ for the sum, or 2G/n̄ with weights n_j/n̄.

    Args:
        lipschitz: G, or the norm C to which each record's gradient is clipped.
        parties: m.
        min_records: n₍₁₎, public.
        total_records: N, public; needed for "size" weights.
        weights: "uniform" or "size".

    Raises:
        ValueError: a count below 1, N < m·n₍₁₎ or absent, G not positive, unknown weights.
    """
    records = _records(parties, min_records, total_records, weights)
    check_positive("lipschitz", lipschitz)
    return _both(2 * exact(lipschitz) / records, parties)


def output_sensitivity(
    *,
    lipschitz: float,
    lambda_: float,
    parties: int,
    min_records: int,
    total_records: int | None = None,
    max_records: int | None = None,
    weights: Weights = "uniform",
    relative_tolerance: float = 0.0,
    tolerance: float = 0.0,
) -> Sensitivity:
    """Δ₂ of certified local optima: 2G/(n₍₁₎λ), or 2G/(n̄λ), and what the solver's error adds.

    ‖∇J_j(θ̂)‖ ≤ τ_j puts θ̂ within τ_j/λ of the optimum, twice that between neighbours. Give one:

    Args:
        lipschitz: G.
        lambda_: λ > 0.
        parties: m.
        min_records: n₍₁₎, public.
        total_records: N, public; needed for "size" weights.
        max_records: the greatest n_j, public; needed for "size" weights with `tolerance`.
        weights: "uniform" or "size".
        relative_tolerance: κ, where every party certifies τ_j ≤ κG/n_j: Δ₂ grows by 1 + κ.
        tolerance: τ, where every party certifies the same τ: the sum grows by 2τ/λ (times
            max n_j/n̄ for "size" weights), the average by 2τ/(mλ).

    Raises:
        ValueError: as for gradient_sensitivity; λ not positive; both tolerances, or a negative one.
    """
    records = _records(parties, min_records, total_records, weights)
    check_positive("lipschitz", lipschitz)
    check_positive("lambda_", lambda_)
    _check_tolerance("relative_tolerance", relative_tolerance)
    _check_tolerance("tolerance", tolerance)
    if relative_tolerance and tolerance:
        raise ValueError(
            f"Expected one of relative_tolerance and tolerance, got {relative_tolerance} "
            f"and {tolerance}."
        )
    ideal = 2 * exact(lipschitz) / (records * exact(lambda_)) * (1 + exact(relative_tolerance))
    heaviest = Fraction(1)
    if tolerance and weights == "size":
        if max_records is None or max_records < records:
            raise ValueError(
                f"Expected max_records ≥ N/m = {float(records):g} for weights by size with a "
                f"common tolerance, got {max_records}."
            )
        heaviest = max_records / records
    return _both(ideal + heaviest * 2 * exact(tolerance) / exact(lambda_), parties)


def _both(total: Fraction, parties: int) -> Sensitivity:
    return Sensitivity(total=round_up(total), average=round_up(total / parties))


def _records(
    parties: int, min_records: int, total_records: int | None, weights: Weights
) -> Fraction:
    """The n in 2G/n: n₍₁₎, or n̄ = N/m."""
    _check_count("parties", parties)
    _check_count("min_records", min_records)
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


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"Expected an integer {name} ≥ 1, got {value!r}.")


def _check_tolerance(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"Expected finite {name} ≥ 0, got {value}.")
