"""The small classic formulas: randomized response, groups, composition, selection, auditing.

References: Warner 1965; Dwork & Roth 2014 (DR14), theorems by their number; Jagielski, Ullman &
Oprea 2020 (2006.07709) for the audit. Each holds for the neighbouring relation of the ε put in.

    >>> round(randomized_response_epsilon(0.75), 5)
    1.09861
    >>> round(advanced_composition(0.1, 100, 1e-5)[0], 5)
    5.85024
    >>> round(audit_epsilon(500, 500, 0, 500, significance=0.01), 5)
    4.54192
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from parley.privacy.accounting.rounding import check_delta, check_epsilon, check_positive

__all__ = [
    "advanced_composition",
    "audit_epsilon",
    "basic_composition",
    "classical_gaussian_multiplier",
    "exponential_mechanism",
    "group_privacy",
    "randomized_response_epsilon",
    "randomized_response_truth",
]


def randomized_response_epsilon(truth: float) -> float:
    """ln(p/(1−p)), the ε of answering a yes/no question truly with probability p ≥ ½.

    Raises:
        ValueError: not ½ ≤ p < 1.
    """
    if not 0.5 <= truth < 1:
        raise ValueError(f"Expected a truth probability in [½, 1), got {truth}.")
    return math.log(truth) - math.log1p(-truth)


def randomized_response_truth(epsilon: float) -> float:
    """e^ε/(1+e^ε), the greatest truth probability that ε allows.

    Raises:
        ValueError: ε negative, infinite or NaN.
    """
    check_epsilon(epsilon)
    return 1 / (1 + math.exp(-epsilon))


def group_privacy(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """(kε, δ·(e^{kε}−1)/(e^ε−1)) for groups of k units (DR14, Theorem 2.2, with its δ summed up).

    δ is capped at 1.

    Raises:
        ValueError: ε or δ out of range, or a size below 1.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    _check_count("size", size)
    if delta == 0:
        return size * epsilon, 0.0
    # Each step multiplies what came before by e^ε: δ·Σ_{i<k} e^{iε}.
    if epsilon == 0:
        return 0.0, min(1.0, size * delta)
    if size * epsilon > 700:
        return size * epsilon, 1.0
    return size * epsilon, min(1.0, delta * math.expm1(size * epsilon) / math.expm1(epsilon))


def basic_composition(costs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(Σε, Σδ) of adaptive releases (DR14, Theorem 3.16), δ capped at 1.

    Raises:
        ValueError: an ε or a δ out of range.
    """
    for epsilon, delta in costs:
        check_epsilon(epsilon)
        check_delta(delta)
    return math.fsum(e for e, _ in costs), min(1.0, math.fsum(d for _, d in costs))


def advanced_composition(
    epsilon: float, count: int, slack: float, delta: float = 0.0
) -> tuple[float, float]:
    """(√(2k·ln(1/δ′))·ε + kε(e^ε−1), kδ + δ′) for k (ε, δ)-DP releases (DR14, Theorem 3.20).

    Args:
        epsilon: ε of one release.
        count: k.
        slack: δ′ in (0, 1).
        delta: δ of one release.

    Raises:
        ValueError: a value out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_delta(slack)
    check_positive("slack", slack)
    _check_count("count", count)
    spread = math.sqrt(-2 * count * math.log(slack)) * epsilon
    drift = count * epsilon * math.expm1(epsilon) if epsilon < 700 else math.inf
    return spread + drift, min(1.0, count * delta + slack)


def classical_gaussian_multiplier(epsilon: float, delta: float) -> float:
    """√(2·ln(1.25/δ))/ε, the textbook's σ/Δ (DR14, Theorem A.1). For comparison only.

    Proved for ε < 1 and wrong for large ε; no calibration here uses it.

    Raises:
        ValueError: ε not positive, or not 0 < δ < 1.
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    check_positive("delta", delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def exponential_mechanism(
    scores: Sequence[float], *, sensitivity: float, epsilon: float
) -> list[float]:
    """Probabilities ∝ exp(ε·u/(2Δu)) of each candidate (DR14, Definition 3.4 and Theorem 3.10).

    Args:
        scores: u of each candidate; at least one, finite.
        sensitivity: Δu > 0, the most one unit changes any score.
        epsilon: ε ≥ 0.

    Raises:
        ValueError: a value out of range.
    """
    check_positive("sensitivity", sensitivity)
    check_epsilon(epsilon)
    if not scores or not all(math.isfinite(score) for score in scores):
        raise ValueError(f"Expected at least one finite score, got {list(scores)}.")
    best = max(scores)
    weights = [math.exp(epsilon * (score - best) / (2 * sensitivity)) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def audit_epsilon(
    hits: int,
    trials: int,
    false_hits: int,
    false_trials: int,
    *,
    significance: float,
    delta: float = 0.0,
) -> float:
    """A lower bound on ε from a distinguisher's counts, wrong with probability ≤ `significance`.

    max{ln((TPR−δ)/FPR), ln((1−δ−FPR)/FNR)} at Clopper–Pearson limits of half the significance
    each (2006.07709, section 4). The event must be fixed before these trials. At least 0.

    Args:
        hits: trials with the target in which the event happened, of `trials`.
        trials: trials with the target.
        false_hits: the same without the target, of `false_trials`.
        false_trials: trials without the target.
        significance: α in (0, 1).
        delta: the δ of the claim that is audited.

    Raises:
        ValueError: counts or probabilities out of range.
    """
    check_delta(delta)
    if not 0 < significance < 1:
        raise ValueError(f"Expected 0 < significance < 1, got {significance}.")
    half = significance / 2
    true_rate = _lower_limit(hits, trials, half)
    false_rate = 1 - _lower_limit(false_trials - false_hits, false_trials, half)
    bounds = [0.0]
    if true_rate > delta:
        bounds.append(math.log((true_rate - delta) / false_rate))
    if 1 - delta - false_rate > 0:
        bounds.append(math.log((1 - delta - false_rate) / (1 - true_rate)))
    return max(bounds)


def _lower_limit(hits: int, trials: int, tail: float) -> float:
    """Clopper & Pearson's lower limit of a rate: P[Bin(n, p) ≥ hits] = tail at this p."""
    from scipy.special import betaincinv

    _check_count("trials", trials)
    if not 0 <= hits <= trials:
        raise ValueError(f"Expected 0 ≤ hits ≤ {trials}, got {hits}.")
    return float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"Expected an integer {name} ≥ 1, got {value!r}.")
