"""Compute σ of DP-SGD's steps from a budget, by bisection and secants.

The charge of a release is computed from its σ again, so no ε depends on how σ was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.privacy_events import (
    BernoulliSteps,
    CountedSteps,
    PoissonSampledGaussian,
)
from parley.privacy.accounting.privacy_filters import compute_epsilon_of_mu
from parley.privacy.accounting.rounding import (
    check_positive,
    check_whole,
    format_exact,
    format_rounded_down,
    format_rounded_up,
    round_up_to_bits,
)
from parley.privacy.accounting.subsampled_gaussian import (
    build_planned_steps,
    compute_pld_epsilon,
    compute_rdp_epsilon,
)

_SIGMA_BITS = 20
"""Significant bits of σ.

Two processors differ by some 10⁻¹² of it, and this rounds up by at most 2·10⁻⁶. So a run that was
started on one is resumed on the other under the same plan.
"""


def _check_needs_noise(rate: float, draws: int, left: float, delta: float, *, parts: str) -> None:
    """Raise ValueError if a record is sampled so rarely that δ covers it without noise."""
    ever = -math.expm1(draws * math.log1p(-rate)) if 0 < rate < 1 else 1.0
    if ever <= left:
        raise ValueError(
            f"Expected delta below {format_rounded_down(ever, 3)}, the chance that a record is in "
            f"any of {parts}, got {format_exact(delta)}: no noise would be needed."
        )


def calibrate_steps(
    *,
    sampling_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    neighbouring: str = "replace-one",
    slack: float = 0.0,
    mu: float = 0.0,
    probability: float = 1.0,
    together: int = 1,
    planned_delta: float = 0.0,
    certificate: AccountCertificate = AccountCertificate.GAUSSIAN,
) -> float:
    """Return the least σ found, to a few 10⁻⁴, with `steps` steps (ε, δ)-DP by PLD, else RDP.

    Args:
        slack: total statistical distance of the steps' noise from its law; (1 + e^ε)·slack of δ is
            reserved for it.
        mu: μ of the Gaussian releases that share the budget.
        probability: p of the visible coin that includes steps (`BernoulliSteps`); 1: no coin.
        together: number of steps that each coin decides on.
        planned_delta: δ′ in addition to δ, with which all steps are one μ-GDP release
            (`build_planned_steps`), as a shared account charges them; 0: a separate plan.
        certificate: of the shared account.
    """
    check_positive("epsilon", epsilon)
    check_whole("steps", steps)
    if not 0 < delta < 1:
        raise ValueError(
            f"Expected delta in (0, 1), got {format_exact(delta)}: the Gaussian noise of DP-SGD "
            "has no pure guarantee."
        )
    left = _compute_steps_delta(epsilon, delta, slack)
    coins, incomplete = divmod(steps, together)
    if incomplete:
        raise ValueError(f"Expected a multiple of {together} steps, got {steps}.")
    if probability < 1:
        _check_needs_noise(probability, coins, left, delta, parts=f"{coins} sums")
    else:
        parts = f"{steps} batches at sampling rate {sampling_rate:g}"
        _check_needs_noise(sampling_rate, steps, left, delta, parts=parts)

    def kinds(sigma: float) -> CountedSteps:
        step = PoissonSampledGaussian(
            sampling_rate=sampling_rate, noise_multiplier=sigma, neighbouring=neighbouring
        )
        if probability == 1:
            return ((step, steps),)
        return ((BernoulliSteps(probability=probability, event=step, count=together), coins),)

    def planned(sigma: float) -> float:
        ((kind, count),) = kinds(sigma)
        whole = build_planned_steps(kind, count, planned_delta * (1 - 1e-6)).mu
        return compute_epsilon_of_mu(certificate, math.hypot(whole, mu) * (1 + 1e-12), left)

    def account(log_sigma: float) -> float:
        if planned_delta:
            return math.log(max(planned(math.exp(log_sigma)) / epsilon, 0.125))
        value = compute_pld_epsilon(kinds(math.exp(log_sigma)), delta=left, mu=mu)
        if math.isinf(value):  # the lower of both is charged
            value = compute_rdp_epsilon(kinds(math.exp(log_sigma)), delta=left, rho=mu**2 / 2)
        # Values below an eighth count as an eighth: at 0 there is no slope to follow.
        return math.log(max(value / epsilon, 0.125))

    # RDP brings σ near the solution; PLD decides.
    def above(sigma: float) -> bool:
        return compute_rdp_epsilon(kinds(sigma), delta=left, rho=mu**2 / 2) > epsilon

    low, high = 0.25, 0.5
    while above(high):
        low, high = high, high * 2
        if high > 1e6:
            raise ValueError(
                f"Expected an epsilon that a noise multiplier up to 10⁶ can reach, got "
                f"{format_exact(epsilon)} for {steps} steps at sampling rate {sampling_rate:g}."
            )
    high = _find_least_sigma(lambda sigma: not above(sigma), low, high, 0.05)
    sigma = math.exp(_find_root(account, math.log(high) - 0.03))
    return round_up_to_bits(sigma, _SIGMA_BITS)


def _compute_steps_delta(epsilon: float, delta: float, slack: float) -> float:
    """Return δ minus the part for the samplers' distance; raise ValueError if none is left."""
    times = 1 + (math.exp(epsilon) if epsilon < 700 else math.inf)
    left = delta - (slack * times if slack else 0.0)
    if not left > 0:
        most = math.log(delta / slack - 1) if delta > 2 * slack else 0.0
        raise ValueError(
            f"Expected epsilon below {format_rounded_down(most, 3)} at delta = "
            f"{format_exact(delta)}, got {format_exact(epsilon)}: delta must exceed (1 + e^ε) "
            f"times the distance of the sampled noise from its law, {format_rounded_up(slack, 3)}."
        )
    return left


def _find_root(f: Callable[[float], float], start: float) -> float:
    """Return a point with the decreasing f in [−2·10⁻⁴, 0], or at most 2·10⁻⁴ above its root.

    The secant method, kept in a bracket.
    """
    high, at_high = start, f(start)
    while at_high > 0:
        high += 0.05
        at_high = f(high)
    low, at_low = -math.inf, math.inf
    step = max(0.02, -at_high)
    while high - low > 2e-4 and at_high < -2e-4:
        if math.isinf(low):
            guess = high - step
        elif math.isinf(at_low):  # beyond the computable range
            guess = (low + high) / 2
        else:
            slope = (at_high - at_low) / (high - low)
            # Slightly above the secant's root, so that the next end is on the safe side.
            guess = min(max(high - at_high / slope + 4e-5, low + 2e-5), high - 2e-5)
        value = f(guess)
        if value > 0:
            low, at_low = guess, value
        else:
            high, at_high = guess, value
            step *= 2
    return high


def _find_least_sigma(
    fits: Callable[[float], bool], low: float, high: float, tolerance: float
) -> float:
    """Return a σ in (low, high] that fits, within a relative `tolerance` of one that does not."""
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
