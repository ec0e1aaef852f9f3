"""Objective perturbation: noise inside the objective, and noise on the solver's result.

Consider a generalised linear loss with |ℓ′| ≤ 1 and |ℓ″| ≤ c on rows ‖x‖ ≤ 1, n records and
λ-strong convexity. The *exact* minimiser of

    J(θ) + bᵀθ/n + (Δ/2)‖θ‖²,   b of density ∝ exp(−ε′‖b‖₂/2),

is ε₁-DP under replace-one (Chaudhuri, Monteleoni & Sarwate 2011, Theorem 9):

    ε′ = ε₁ − ln(1 + 2c/(nλ) + c²/(n²λ²)) and Δ = 0, if that is > 0; ε′ = ε₁/2 and Δ = c/(n(e^{ε₁/4}
    − 1)) − λ otherwise.

No solver returns the exact minimiser. A solver that certifies a gradient norm ≤ τ is within τ/(λ +
Δ) of it. So l2-laplace noise of b = 2τ/((λ + Δ)ε₂), *given* the exact minimiser, is ε₂-DP. The
release is then (ε₁ + ε₂)-DP by adaptive composition (the idea of Iyengar et al. 2019, Algorithm 1,
with pure noise instead of its Gaussians). The exact minimiser is never computed.

>>> for n in (50, 50_000):
...     inside = compute_objective_noise(epsilon=0.5, records=n, lambda_=0.001, curvature=0.25)
...     print(f"{inside.log_term:.8g} {inside.epsilon:.6g} {inside.regularisation:.6g}")
3.5835189 0.25 0.0365521
0.009975083 0.490025 0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from parley.privacy.accounting.privacy_events import Approximate, Pure
from parley.privacy.accounting.rounding import (
    check_positive,
    format_rounded_up,
    round_up,
    to_fraction,
)
from parley.privacy.mechanisms.laplace import L2Laplace
from parley.privacy.sampling.rounded_gaussian import compute_rounded_distance

_ROUNDING_MARGIN = 1 - 1e-12


@dataclass(frozen=True, kw_only=True)
class ObjectiveNoise:
    """Noise inside an objective.

    Attributes:
        log_term: ln(1 + 2c/(nλ) + c²/(n²λ²)).
        epsilon: ε′, which scales b; rounded down.
        regularisation: Δ; rounded up.
    """

    log_term: float
    epsilon: float
    regularisation: float

    @property
    def scale(self) -> float:
        """Scale 2/ε′ of the length of b."""
        return 2 / self.epsilon


def compute_objective_noise(
    *, epsilon: float, records: int, lambda_: float, curvature: float
) -> ObjectiveNoise:
    """Return the noise that makes the exact minimiser ε-DP with at least `records` records.

    More records need less of both values, so the noise for the smallest party is enough for all.
    `epsilon` is ε₁ > 0, `lambda_` is λ > 0, `curvature` is c ≥ 0 of the loss.
    """
    check_positive("epsilon", epsilon)
    check_positive("lambda_", lambda_)
    if records < 1 or not 0 <= curvature < math.inf:
        raise ValueError(f"Expected n >= 1 and c >= 0, got {records} and {curvature}.")
    log_term = 2 * math.log1p(curvature / (records * lambda_))
    left = (epsilon - log_term * (1 + 1e-12)) * _ROUNDING_MARGIN
    if left > 0:
        return ObjectiveNoise(log_term=log_term, epsilon=left, regularisation=0.0)
    whole = curvature / (records * math.expm1(epsilon / 4)) * (1 + 1e-12)
    return ObjectiveNoise(
        log_term=log_term,
        epsilon=epsilon / 2 * _ROUNDING_MARGIN,
        regularisation=max(whole - lambda_, 0.0),
    )


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(L2Laplace):
    """Noise inside a party's objective, and this l2-laplace noise on the optimum that it certified.

    `sensitivity` and `epsilon` are those of the noise on the optimum: Δ = 2τ/(λ + Δ′) and ε₂. Its
    event has ε₁ + ε₂, and the distances of both samplers as δ. Replace-one.
    """

    law: ClassVar[str] = "objective-perturbation"
    vectors: ClassVar[int] = 2

    objective_epsilon: float
    """ε₁ > 0, the cost of the exact minimiser."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("objective_epsilon", self.objective_epsilon)

    @property
    def objective(self) -> float:
        """ε₁."""
        return self.objective_epsilon

    def event(self) -> Approximate:
        """Return the event: pure ε₁ + ε₂, up to the samplers' distances."""
        both = round_up(to_fraction(self.objective_epsilon) + to_fraction(self.epsilon))
        distance = self.vectors * compute_rounded_distance(self.dimension)
        return Approximate(event=Pure(epsilon=both), delta=distance)

    def build_facts(self) -> dict[str, float]:
        """Return the part of the charge that is for the noise in the objective."""
        return {"objective_epsilon": self.objective_epsilon}

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        return (
            "Noise inside every party's objective, for "
            f"{format_rounded_up(self.objective_epsilon)}, and a "
            f"vector of {self.dimension} coordinates and length Gamma({self.dimension}, "
            f"{self.scale:.6g}) on the optimum that its solver certified."
        )
