"""σ of one of T Gaussian releases that are (ε, δ)-DP together, in four calibrations.

| calibration | σ | proved by |
|---|---|---|
| exact | √T·Δ/μ, μ the largest that meets (ε, δ) | Balle & Wang 2018, Theorem 8 |
| zcdp | Δ√(T/(2ρ)), ρ = (√(L+ε) − √L)² | Bun & Steinke 2016, Proposition 1.3 |
| cks20 | Δ√(T/(2ρ)), ρ the largest that meets (ε, δ) | Canonne et al. 2020, Proposition 12 |
| as-printed | Δ√(2TL)/ε | Jayaraman et al. 2018; refused where exact says no |

L = ln(1/δ). Δ is L2 and replace-one, σ has its unit and is rounded up.

    >>> for name in GAUSSIAN_CALIBRATIONS:
    ...     s = gaussian_sigma(name, sensitivity=4e-5, epsilon=0.5, delta=1e-5, rounds=100)
    ...     print(name, round(s, 8))
    exact 0.00281273
    cks20 0.00306686
    zcdp 0.00388006
    as-printed 0.00383882
"""

from __future__ import annotations

import math
from collections.abc import Callable

from parley.privacy.accounting.gaussian_curve import gaussian_epsilon, gaussian_mu
from parley.privacy.accounting.rounding import as_written, largest, shown_down, shown_up
from parley.privacy.accounting.zcdp import cks20_rho, zcdp_rho


class CalibrationError(ValueError):
    """The budget cannot be met by this law and calibration; the message has the numbers."""


def gaussian_sigma(
    calibration: str, *, sensitivity: float, epsilon: float, delta: float, rounds: int
) -> float:
    """σ of one of `rounds` ideal Gaussian releases, in the unit of Δ.

    Raises:
        CalibrationError: an unknown calibration, a value out of range, as-printed beyond
            `as_printed_limit`, or σ beyond the floats.
    """
    check_budget(epsilon, delta, rounds, sensitivity)
    if delta == 0:
        raise CalibrationError(
            "Expected delta > 0 for Gaussian noise, got 0. "
            "At delta = 0 use l2-laplace or laplace-l1."
        )
    if calibration not in _MU:
        raise CalibrationError(
            f"Expected calibration one of {', '.join(GAUSSIAN_CALIBRATIONS)}, got {calibration!r}."
        )
    mu = _MU[calibration](epsilon, delta)
    # The sensitivity comes last, so that σ scales with its unit.
    multiplier = math.sqrt(rounds) / mu * (1 + 1e-14) if mu > 0 else math.inf
    sigma = multiplier * sensitivity
    if not 0 < sigma < math.inf:
        raise CalibrationError(
            f"Expected a budget that Gaussian noise can meet, got epsilon = "
            f"{as_written(epsilon)} and delta = {as_written(delta)} over {rounds} rounds "
            f"at sensitivity {sensitivity:g}."
        )
    return sigma


def as_printed_limit(delta: float) -> float:
    """The largest ε at which σ² = 8G²TL/(m²n²ε²) = 2TΔ²L/ε² is (ε, δ)-DP by the exact curve.

    >>> round(as_printed_limit(1e-5), 4), round(as_printed_limit(1e-3), 4)
    (7.9681, 6.978)
    """
    if not 0 < delta < 1:
        raise CalibrationError(f"Expected 0 < delta < 1, got {delta}.")
    return largest(
        lambda epsilon: gaussian_epsilon(_as_printed_mu(epsilon, delta), delta) <= epsilon,
        start=-math.log(delta) / 10,
    )


def check_budget(epsilon: float, delta: float, rounds: int, sensitivity: float) -> None:
    """Raise CalibrationError unless ε > 0, 0 ≤ δ < 1, T ≥ 1 and Δ > 0, all finite."""
    if not 0 < epsilon < math.inf:
        raise CalibrationError(f"Expected a finite epsilon > 0, got {epsilon}.")
    if not 0 <= delta < 1:
        raise CalibrationError(f"Expected 0 ≤ delta < 1, got {delta}.")
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise CalibrationError(f"Expected an integer number of rounds ≥ 1, got {rounds!r}.")
    if not 0 < sensitivity < math.inf:
        raise CalibrationError(f"Expected a finite sensitivity > 0, got {sensitivity}.")


def _as_printed_mu(epsilon: float, delta: float) -> float:
    """√T·Δ/σ of the printed σ: ε/√(2L)."""
    return epsilon / math.sqrt(-2 * math.log(delta))


def _checked_as_printed_mu(epsilon: float, delta: float) -> float:
    mu = _as_printed_mu(epsilon, delta)
    truth = gaussian_epsilon(mu, delta)
    if truth > epsilon:
        raise CalibrationError(
            f"Expected epsilon ≤ {shown_down(as_printed_limit(delta))} for the as-printed "
            f"calibration at delta = {as_written(delta)}, got {as_written(epsilon)}: it would "
            f"truly cost {shown_up(truth)}. Use exact."
        )
    return mu


_MU: dict[str, Callable[[float, float], float]] = {
    "exact": gaussian_mu,
    "cks20": lambda epsilon, delta: math.sqrt(2 * cks20_rho(epsilon, delta)),
    "zcdp": lambda epsilon, delta: math.sqrt(2 * zcdp_rho(epsilon, delta)),
    "as-printed": _checked_as_printed_mu,
}
"""Calibration → √T·Δ/σ of an (ε, δ)."""

GAUSSIAN_CALIBRATIONS = tuple(_MU)
