"""Compute the noise of one round from a budget, such that T rounds are (ε, δ)-DP together.

Gaussians use a calibration; the Laplace laws split ε evenly over the rounds. Δ is L2 and
replace-one (`parley.privacy.calibration.optimum_sensitivity`); the scale has its unit. Every
returned mechanism was composed T times, including its sampler's distance, and found within (ε, δ).

    >>> budget = {"epsilon": 0.5, "delta": 1e-5, "rounds": 1, "sensitivity": 0.004}
    >>> for d in (10, 100):
    ...     noise = calibrate(law="auto", dimension=d, **budget)
    ...     print(noise.law, round(noise.scale, 6), round(noise.expected_norm(), 6))
    l2-laplace 0.008 0.083905
    gaussian 0.028127 0.281273

The module also computes σ of one of T Gaussian releases that are (ε, δ)-DP together, in four
calibrations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_gaussian_epsilon
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.rounding import (
    format_exact,
    format_rounded_down,
    format_rounded_up,
    round_up_to_bits,
    to_fraction,
)
from parley.privacy.calibration.inverse_curves import (
    compute_cks20_rho,
    compute_gaussian_mu,
    compute_zcdp_rho,
    find_largest,
)
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.registry import MECHANISM_CLASSES, MECHANISMS

if TYPE_CHECKING:
    from parley.privacy.mechanisms.gaussian import GaussianLaw
    from parley.privacy.mechanisms.laplace import LaplaceLaw

_SIGMA_BITS = 44
"""Significant bits of √T/μ; two processors differ in the last of its 53 bits."""


class CalibrationError(ValueError):
    """The law and calibration cannot meet the budget; the message contains the numbers."""


def compute_gaussian_sigma(
    calibration: str, *, sensitivity: float, epsilon: float, delta: float, rounds: int
) -> float:
    """Return σ of one of `rounds` ideal Gaussian releases, in the unit of Δ.

    Raises:
        CalibrationError: an unknown calibration, a value out of range, as-printed beyond
            `compute_as_printed_limit`, or σ beyond the floats.
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
    # Multiply by the sensitivity last, so that σ scales with its unit.
    multiplier = math.inf
    if mu > 0:
        multiplier = round_up_to_bits(math.sqrt(rounds) / mu * (1 + 1e-14), _SIGMA_BITS)
    sigma = multiplier * sensitivity
    if not 0 < sigma < math.inf:
        raise CalibrationError(
            f"Expected a budget that Gaussian noise can meet, got epsilon = "
            f"{format_exact(epsilon)} and delta = {format_exact(delta)} over {rounds} rounds "
            f"at sensitivity {sensitivity:g}."
        )
    return sigma


def compute_as_printed_limit(delta: float) -> float:
    """Return the largest ε at which the printed σ is (ε, δ)-DP by the exact curve.

    The printed σ is σ² = 8G²TL/(m²n²ε²) = 2TΔ²L/ε².

    >>> round(compute_as_printed_limit(1e-5), 4), round(compute_as_printed_limit(1e-3), 4)
    (7.9681, 6.978)
    """
    if not 0 < delta < 1:
        raise CalibrationError(f"Expected 0 < delta < 1, got {delta}.")

    def holds(epsilon: float) -> bool:
        return compute_gaussian_epsilon(_compute_as_printed_mu(epsilon, delta), delta) <= epsilon

    return find_largest(holds, start=-math.log(delta) / 10)


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


def _compute_as_printed_mu(epsilon: float, delta: float) -> float:
    """Return √T·Δ/σ of the printed σ: ε/√(2L)."""
    return epsilon / math.sqrt(-2 * math.log(delta))


def _compute_checked_mu(epsilon: float, delta: float) -> float:
    mu = _compute_as_printed_mu(epsilon, delta)
    truth = compute_gaussian_epsilon(mu, delta)
    if truth > epsilon:
        raise CalibrationError(
            f"Expected epsilon ≤ {format_rounded_down(compute_as_printed_limit(delta))} for the "
            f"as-printed calibration at delta = {format_exact(delta)}, got "
            f"{format_exact(epsilon)}: its true cost is {format_rounded_up(truth)}."
        )
    return mu


_MU: dict[str, Callable[[float, float], float]] = {
    "exact": compute_gaussian_mu,
    "cks20": lambda epsilon, delta: math.sqrt(2 * compute_cks20_rho(epsilon, delta)),
    "zcdp": lambda epsilon, delta: math.sqrt(2 * compute_zcdp_rho(epsilon, delta)),
    "as-printed": _compute_checked_mu,
}
"""Calibration → function from (ε, δ) to √T·Δ/σ."""

GAUSSIAN_CALIBRATIONS = tuple(_MU)


LAWS = (*MECHANISMS, "auto")

SAMPLER_DELTA = 2.0**-40
"""The δ that l2-laplace states if δ = 0 was requested; it covers its sampler's distance."""

_AUTO = ("laplace-l1", "l2-laplace", "gaussian")  # in a tie, the law without slack


def calibrate(
    *,
    law: str,
    calibration: str = "exact",
    epsilon: float,
    delta: float,
    rounds: int,
    sensitivity: float,
    dimension: int,
    cost: Callable[[Mechanism], PrivacyEvent] = lambda mechanism: mechanism.event(),
) -> Mechanism:
    """Return the mechanism of one round, such that `rounds` of them are (ε, δ)-DP together.

    `laplace-as-printed` is the exception: it uses the paper's scale, and its event charges √d·ε.

    Args:
        law: a key of MECHANISMS, or "auto": among gaussian (at δ > 0), l2-laplace and laplace-l1
            the one with the lowest expected norm.
        calibration: one of GAUSSIAN_CALIBRATIONS that is proved for the law; the Laplace laws
            ignore it.
        epsilon, delta: totals, ε > 0 and δ in [0, 1). At δ = 0 l2-laplace is returned to be charged
            at `compute_stated_delta`.
        sensitivity: Δ₂ > 0 of one round, replace-one; the scale has its unit.
        cost: the charge of a release with a mechanism's noise, if its shares' samplers cost more
            than the law's sampler; its distance from the ideal must not depend on the scale.

    Raises:
        CalibrationError: there is no such mechanism; the message names the number that prevents it.
    """
    check_budget(epsilon, delta, rounds, sensitivity)
    if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
        raise CalibrationError(f"Expected an integer dimension ≥ 1, got {dimension!r}.")
    if calibration not in GAUSSIAN_CALIBRATIONS:
        raise CalibrationError(
            f"Expected calibration one of {', '.join(GAUSSIAN_CALIBRATIONS)}, got {calibration!r}."
        )

    need = _CalibrationRequest(epsilon, delta, rounds, sensitivity, dimension, cost)
    if law not in LAWS:
        raise CalibrationError(f"Expected law one of {', '.join(LAWS)}, got {law!r}.")
    names = (law,) if law != "auto" else _AUTO if delta > 0 else _AUTO[:2]
    allowed: list[Mechanism] = []
    refusals: list[str] = []
    for kind in (MECHANISMS[name] for name in names):
        # Subclasses of GaussianLaw name the calibrations that are proved for them.
        find: _Scaling = _calibrate_by_sigma if kind.calibrations else _calibrate_by_epsilon
        try:
            allowed.append(find(kind, calibration, need))
        except CalibrationError as refusal:
            refusals.append(str(refusal))
    if not allowed:
        raise CalibrationError(" ".join(refusals))
    return min(allowed, key=lambda mechanism: mechanism.expected_norm())


def compute_stated_delta(law: str, delta: float) -> float:
    """Return the δ at which a run with this law is charged; not 0 if its sampler has slack.

    >>> (compute_stated_delta("l2-laplace", 0.0) == SAMPLER_DELTA,
    ... compute_stated_delta("laplace-l1", 0.0))
    (True, 0.0)
    """
    return SAMPLER_DELTA if delta == 0 and MECHANISM_CLASSES[law].has_sampler_distance else delta


@dataclass(frozen=True)
class _CalibrationRequest:
    """Checked arguments of `calibrate`."""

    epsilon: float
    delta: float
    rounds: int
    sensitivity: float
    dimension: int
    cost: Callable[[Mechanism], PrivacyEvent]

    def compose_rounds(self, mechanism: Mechanism) -> Composition:
        """Return the charge of all rounds."""
        return Composition().add(self.cost(mechanism), self.rounds)


_Scaling = Callable[[Any, str, _CalibrationRequest], Mechanism]


def _calibrate_by_sigma(
    kind: type[GaussianLaw], calibration: str, need: _CalibrationRequest
) -> GaussianLaw:
    if calibration not in kind.calibrations:
        raise CalibrationError(
            f"Expected calibration {' or '.join(kind.calibrations)} for {kind.law}, "
            f"got {calibration}: it is not proved for this law."
        )
    # The slack of an event does not depend on σ, so any σ gives it.
    probe = kind(sensitivity=1.0, sigma=1.0, dimension=need.dimension)
    taken = need.compose_rounds(probe).compute_sampler_delta(need.epsilon)
    if 0 < need.delta <= taken:
        expected = f"delta > {format_rounded_up(taken, 3)}" if taken < 1 else "a smaller epsilon"
        raise CalibrationError(
            f"Expected {expected}, got epsilon = {format_exact(need.epsilon)} and delta = "
            f"{format_exact(need.delta)}: the sampler of {kind.law} uses "
            f"{'that much' if taken < 1 else 'more than any delta at this epsilon'} "
            f"in {need.rounds} rounds of {need.dimension} coordinates."
        )
    sigma = compute_gaussian_sigma(
        calibration,
        sensitivity=need.sensitivity,
        epsilon=need.epsilon,
        delta=max(0.0, need.delta - taken),  # the part left for an ideal Gaussian
        rounds=need.rounds,
    )
    mechanism = kind(sensitivity=need.sensitivity, sigma=sigma, dimension=need.dimension)
    return _widen_until_verified(mechanism, kind.calibrations[calibration], need)


def _widen_until_verified(
    mechanism: GaussianLaw, conversion: str, need: _CalibrationRequest
) -> GaussianLaw:
    """Return the mechanism with its σ raised by the few ulp by which T events may exceed ε."""
    wider = 1e-14
    while True:
        found = need.compose_rounds(mechanism).compute_epsilons(need.delta)
        if found.get(conversion, math.inf) <= need.epsilon:
            return mechanism
        if wider > 1e-3:
            raise CalibrationError(
                "Expected a budget that Gaussian noise can meet in double precision, got epsilon "
                f"= {format_exact(need.epsilon)} and delta = {format_exact(need.delta)} over "
                f"{need.rounds} rounds."
            )
        mechanism = replace(mechanism, sigma=mechanism.sigma * (1 + wider))
        wider *= 2


def _calibrate_by_epsilon(kind: type[LaplaceLaw], _: str, need: _CalibrationRequest) -> LaplaceLaw:
    share = _compute_epsilon_share(need.epsilon, need.rounds)
    mechanism = kind(sensitivity=need.sensitivity, epsilon=share, dimension=need.dimension)
    if not 0 < mechanism.scale < math.inf:
        raise CalibrationError(
            f"Expected a finite scale, got {mechanism.scale} from sensitivity "
            f"{need.sensitivity:g} and epsilon {format_rounded_up(share)} per round."
        )
    taken = need.compose_rounds(mechanism).compute_sampler_delta(need.epsilon)
    stated = compute_stated_delta(kind.law, need.delta)
    if taken > stated:
        raise CalibrationError(
            f"Expected delta ≥ {format_rounded_up(min(taken, 1.0), 3)}, got "
            f"{format_exact(stated)}: at epsilon = {format_exact(need.epsilon)} the sampler of "
            f"{kind.law} uses that much in {need.rounds} rounds of {need.dimension} coordinates."
        )
    return mechanism


def _compute_epsilon_share(epsilon: float, rounds: int) -> float:
    """Return the largest float whose exact sum over the rounds is at most ε."""
    share = epsilon / rounds
    while to_fraction(share) * rounds > to_fraction(epsilon):
        share = math.nextafter(share, 0.0)
    if share == 0:
        raise CalibrationError(f"Expected epsilon/rounds > 0, got {epsilon}/{rounds}.")
    return share
