"""Bound ε from one run with many canaries, by the number of correct guesses of independent coins.

m fair coins decide which canaries a run contains (or which of two records each canary is). An
auditor guesses r of them from the release, and v guesses are correct. The bound is for the coins'
neighbouring relation: add-or-remove-one for in or out, replace-one for one of two.

    >>> round(compute_one_run_epsilon(canaries=1000, guesses=100, right=75, alpha=0.05,
    ...     delta=1e-4), 6)
    0.672985
    >>> round(compute_one_run_mu(canaries=100, guesses=100, right=95, alpha=0.05), 5)
    1.08333
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, ndtr, ndtri

from parley.privacy.accounting.rounding import check_delta
from parley.privacy.audit.event_counts import LowerBound, check_alpha, compute_alpha
from parley.privacy.audit.two_world_bounds import build_gaussian_bound

_LARGEST_EPSILON = 200.0
_LARGEST_MU = 30.0


def compute_one_run_p(
    epsilon: float, *, canaries: int, guesses: int, right: int, delta: float
) -> float:
    """Bound P[at least v correct guesses | (ε, δ)-DP] (Steinke, Nasr & Jagielski 2023, App. D).

    p = P[Bin(r, q) ≥ v] + 2mδ·max_{1≤i≤v} P[v > Bin(r, q) ≥ v − i]/i, q = e^ε/(1 + e^ε).

    >>> round(compute_one_run_p(0.5, canaries=1000, guesses=100, right=75, delta=1e-4), 7)
    0.0145872
    """
    _check_guesses(canaries, guesses, right)
    q = 1 / (1 + math.exp(-epsilon))
    below = float(bdtr(right - 1, guesses, q)) if right else 0.0
    tail = float(bdtrc(right - 1, guesses, q)) if right else 1.0
    if not delta or not right:
        return tail
    i = np.arange(1, right + 1)
    lower = np.where(right - i > 0, bdtr(np.maximum(right - i - 1, 0), guesses, q), 0.0)
    worst = float(((below - lower) / i).max())
    return tail + 2 * canaries * delta * worst


def compute_one_run_epsilon(
    *, canaries: int, guesses: int, right: int, alpha: float, delta: float
) -> float:
    """Return the largest ε that this many correct guesses refute: sup{ε : p(ε) ≤ α}; 0 for none.

    Args:
        guesses: r, fixed before the guesses were made.
    """
    check_alpha(alpha)
    check_delta(delta)
    _check_guesses(canaries, guesses, right)

    def refuted(epsilon: float) -> bool:
        p = compute_one_run_p(epsilon, canaries=canaries, guesses=guesses, right=right, delta=delta)
        return p <= alpha

    return _find_largest_refuted(refuted, _LARGEST_EPSILON)


def one_run_bound(
    *, canaries: int, guesses: int, right: int, confidence: float, delta: float
) -> LowerBound:
    """Return `compute_one_run_epsilon` with its confidence. It assumes nothing about the noise."""
    alpha = compute_alpha(confidence)
    epsilon = compute_one_run_epsilon(
        canaries=canaries, guesses=guesses, right=right, alpha=alpha, delta=delta
    )
    return LowerBound(method="one-run", epsilon_lower=epsilon, confidence=confidence, delta=delta)


def compute_one_run_mu(*, canaries: int, guesses: int, right: int, alpha: float) -> float:
    """Return the largest μ whose Gaussian curve this many correct guesses refute; 0 for none.

    Mahloujifar, Melis & Chaudhuri 2024 (arXiv:2410.22235, Algorithm 3), with abstention and two
    choices per canary.
    """
    check_alpha(alpha)
    _check_guesses(canaries, guesses, right)
    m, r, v = canaries, guesses, right

    def refuted(mu: float) -> bool:
        reached, missed = alpha * v / m, alpha * (r - v) / m
        for i in range(v - 1, -1, -1):
            # g(x) = 1 − f(x) for the inverse of the curve: Φ(Φ⁻¹(x) − μ).
            more = max(missed, float(ndtr(ndtri(reached) - mu)))
            if more == missed:
                break
            reached = min(reached + i / (r - i) * (more - missed), 1.0)
            missed = more
        return reached + missed > r / m

    return _find_largest_refuted(refuted, _LARGEST_MU)


def one_run_fdp_bound(
    *, canaries: int, guesses: int, right: int, confidence: float, delta: float
) -> LowerBound:
    """Return `compute_one_run_mu` and the ε of that curve at δ: Gaussian curve assumed."""
    alpha = compute_alpha(confidence)
    mu = compute_one_run_mu(canaries=canaries, guesses=guesses, right=right, alpha=alpha)
    return build_gaussian_bound("one-run-fdp", mu, confidence=confidence, delta=delta)


def find_surest_guesses(
    scores: NDArray[np.float64],
    right: NDArray[np.bool_],
    parts: Sequence[tuple[int, float]],
    *,
    alpha: float,
    delta: float,
) -> dict[str, tuple[float, int, int]]:
    """Return the best bound from the surest guesses, over several numbers of guesses.

    Each number is fixed beforehand and has its own part of α, so the bound holds for all of them
    together.

    Args:
        scores: `[m]`, of either sign.
        right: `[m]` whether the guess by that score is correct.
        parts: pairs (k, share): use m/k of all guesses at this share of α.

    Returns:
        one-run → (ε, guesses, right), one-run-fdp → (μ, guesses, right).
    """
    order = np.argsort(-np.abs(scores), kind="stable")
    best: dict[str, tuple[float, int, int]] = {}
    for part, share in parts:
        chosen = order[: max(1, scores.size // part)]
        v = int(right[chosen].sum())
        coins = {"canaries": scores.size, "guesses": len(chosen), "right": v}
        for method, bound in (
            ("one-run", compute_one_run_epsilon(**coins, alpha=share * alpha, delta=delta)),
            ("one-run-fdp", compute_one_run_mu(**coins, alpha=share * alpha)),
        ):
            best[method] = max(best.get(method, (-1.0, 0, 0)), (bound, len(chosen), v))
    return best


def _check_guesses(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries or canaries < 1:
        raise ValueError(
            f"Expected right <= guesses <= canaries, got {right} of {guesses} guesses for "
            f"{canaries} canaries."
        )


def _find_largest_refuted(refuted: Callable[[float], bool], most: float) -> float:
    """Return the largest refuted value by bisection; the refuted values are an interval from 0."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if high > most:
            return most
    while high - low > 1e-12 * (1 + high):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
