"""Bound ε and μ from the rates of one event in two worlds.

`in` is a world with the canary, `out` one without it or with its opposite. An (ε, δ)-DP release has
P_in[E] ≤ e^ε·P_out[E] + δ for every event E (Kairouz, Oh & Viswanath 2015, Theorem 2.1). The
probabilities are replaced by limits of Clopper & Pearson, each at half of α (Nasr et al. 2021,
arXiv:2101.04535).

    >>> from parley.privacy.audit.event_counts import Hits
    >>> seen = Hits(hits=490, trials=500), Hits(hits=10, trials=500)
    >>> round(compute_pair_epsilon(*seen, alpha=0.01, delta=0.0), 5)
    3.11952
"""

from __future__ import annotations

import math

from scipy.special import ndtri

from parley.privacy.accounting.gaussian_curve import compute_gaussian_epsilon
from parley.privacy.accounting.rounding import check_delta
from parley.privacy.audit.event_counts import Hits, LowerBound, check_alpha, compute_alpha


def compute_pair_epsilon(hits_in: Hits, hits_out: Hits, *, alpha: float, delta: float) -> float:
    """Return the bound ε ≥ ln((CP₋(hits_in) − δ)/CP₊(hits_out)), or 0 if it is negative.

    Args:
        alpha: the chance that the bound is too high, for both limits together.
    """
    check_alpha(alpha)
    check_delta(delta)
    low, high = hits_in.lower(alpha / 2), hits_out.upper(alpha / 2)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def pair_bound(hits_in: Hits, hits_out: Hits, *, confidence: float, delta: float) -> LowerBound:
    """Return `compute_pair_epsilon` with its confidence. It assumes nothing about the noise."""
    epsilon = compute_pair_epsilon(hits_in, hits_out, alpha=compute_alpha(confidence), delta=delta)
    return LowerBound(method="pair", epsilon_lower=epsilon, confidence=confidence, delta=delta)


def compute_pair_ceiling(trials: int, *, alpha: float, delta: float) -> float:
    """Return the largest ε that this many trials per world can certify.

    All trials of one world are then hits, and none of the other.
    """
    all_hit, none = Hits(hits=trials, trials=trials), Hits(hits=0, trials=trials)
    return compute_pair_epsilon(all_hit, none, alpha=alpha, delta=delta)


def compute_mu_lower(false_positives: Hits, false_negatives: Hits, *, alpha: float) -> float:
    """Return the bound μ ≥ Φ⁻¹(1 − FPR₊) − Φ⁻¹(FNR₊), or 0 if it is negative.

    No test of a μ-GDP release has rates below its trade-off curve (Dong, Roth & Su 2022, Equation
    (6)). The bound refutes a claim of a smaller μ. As a bound on ε it assumes that the release *is*
    as hard to test as a Gaussian one everywhere: "Gaussian curve assumed" (Nasr et al. 2023,
    arXiv:2302.07956).
    """
    check_alpha(alpha)
    rates = false_positives.upper(alpha / 2), false_negatives.upper(alpha / 2)
    if max(rates) >= 1:
        return 0.0
    return max(0.0, -float(ndtri(rates[0])) - float(ndtri(rates[1])))


def compute_gaussian_lower(mu: float, delta: float) -> float:
    """Return ε(δ) of the Gaussian curve, rounded down; 0 at δ = 0, as ∞ is no bound there."""
    epsilon = compute_gaussian_epsilon(mu, delta)
    return epsilon * (1 - 1e-12) if math.isfinite(epsilon) else 0.0


def mu_bound(
    false_positives: Hits, false_negatives: Hits, *, confidence: float, delta: float
) -> LowerBound:
    """Return `mu_lower` and the ε of that curve at δ."""
    mu = compute_mu_lower(false_positives, false_negatives, alpha=compute_alpha(confidence))
    return build_gaussian_bound("mu", mu, confidence=confidence, delta=delta)


def build_gaussian_bound(method: str, mu: float, *, confidence: float, delta: float) -> LowerBound:
    """Return a method's bound on μ with the ε of that Gaussian curve at δ."""
    check_delta(delta)
    return LowerBound(
        method=method,
        epsilon_lower=compute_gaussian_lower(mu, delta),
        mu_lower=mu,
        confidence=confidence,
        delta=delta,
    )


def compute_mu_ceiling(trials: int, *, alpha: float) -> float:
    """Return the largest μ that this many trials per world can certify."""
    none = Hits(hits=0, trials=trials)
    return compute_mu_lower(none, none, alpha=alpha)
