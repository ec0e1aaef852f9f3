"""Privacy filters: bounds that hold if releases are chosen from earlier answers.

A filter adds up one number per release, and compares the total with a limit that was fixed when the
account was opened. `parley.privacy.accounting.account_admission` has the table of filters and
their theorems.

    >>> from parley.privacy.accounting.privacy_events import GaussianEvent, Pure
    >>> round(compute_mu(Pure(epsilon=1.0)), 6), round(float(compute_rho(Pure(epsilon=1.0))), 6)
    (1.232035, 0.462117)
    >>> day = Composition.from_events([GaussianEvent(mu=0.1), Pure(epsilon=0.1)])
    >>> round(compute_filter_epsilon(
    ...     AccountCertificate.ZCDP, day, epsilon=1.0, delta=1e-5, reserved=1e-7), 3)
    0.546
"""

from __future__ import annotations

import math
from fractions import Fraction

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.accountants import sum_pure_epsilon
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_cks20_epsilon, compute_gaussian_epsilon
from parley.privacy.accounting.privacy_events import (
    BoundedRange,
    GaussianEvent,
    PlannedSteps,
    PrivacyEvent,
    Pure,
    Zcdp,
)
from parley.privacy.accounting.rounding import round_root_up, round_up, to_fraction
from parley.privacy.special_functions import ndtri

_MIN_DISTANCE = 2.0**-70
"""Distance γ of samplers for which an account keeps room, however large its ε is."""


def compute_mu(event: PrivacyEvent) -> float:
    """Return μ with which the event is μ-GDP, rounded up; ∞ if no μ is proved for it.

    ε-DP has μ = 2Φ⁻¹(e^ε/(1 + e^ε)): its trade-off function has its corner at 1/(1 + e^ε), and the
    convex curve G_μ through the corner is below both chords. A bounded range of ε has the same μ at
    ε/2. A sampled step has the μ of the step without sampling.
    """
    if isinstance(event, GaussianEvent):
        return event.mu
    if isinstance(event, PlannedSteps):
        return event.mu
    if isinstance(event, Pure):
        return _compute_pure_mu(event.epsilon / (2 if isinstance(event, BoundedRange) else 1))
    if isinstance(event, Zcdp):
        return math.inf
    return round_root_up(2 * event.exact_rho)


def _compute_pure_mu(epsilon: float) -> float:
    if epsilon == 0:
        return 0.0
    if epsilon > 690:  # e^ε is near the largest float
        return math.inf
    # The probability and its quantile are off by a few ulp; if ε is small, by a few ulp of 1/2.
    return -2 * float(ndtri(1 / (1 + math.exp(epsilon)))) * (1 + 1e-13) + 2e-15


def compute_rho(event: PrivacyEvent) -> Fraction:
    """Return ρ with which the event is ρ-zCDP, rounded up.

    ε-DP has ρ = ε·tanh(ε/2), the divergence of randomised response, which is the largest. Planned
    steps have μ²/2, as every μ-GDP release (Dong, Roth & Su 2022, Corollary B.6).
    """
    if isinstance(event, PlannedSteps):
        return to_fraction(event.mu) ** 2 / 2
    if isinstance(event, Pure):
        implied = event.epsilon * math.tanh(event.epsilon / 2) * (1 + 1e-14)
        return min(event.exact_rho, to_fraction(implied))
    return event.exact_rho


def compute_epsilon_of_mu(certificate: AccountCertificate, mu: float, delta: float) -> float:
    """Return the ε at `delta` that an account charges for a μ-GDP release."""
    if certificate is AccountCertificate.ZCDP:
        return compute_cks20_epsilon(round_up(to_fraction(mu) ** 2 / 2), delta)
    return compute_gaussian_epsilon(mu, delta)


def get_planned_delta(event: PrivacyEvent) -> float:
    """Return δ′, the event's distance from one that has its μ or ρ; 0 except for planned steps."""
    return event.delta if isinstance(event, PlannedSteps) else 0.0


def compute_used_delta(spent: Composition, *, epsilon: float, reserved: float) -> float:
    """Return the used part of δₐ, `reserved`, of an account whose budget is `epsilon`."""
    planned = math.fsum(get_planned_delta(event) * n for event, n in spent.counts.items())
    paid_at = min(epsilon, _compute_largest_epsilon(reserved))
    return planned * (1 + 1e-15) + spent.compute_sampler_delta(paid_at)


def _compute_largest_epsilon(reserved: float) -> float:
    """Return the largest ε at which the samplers' distance still fits into δₐ."""
    return math.log(max(reserved / _MIN_DISTANCE - 1, 1.0))


def compute_filter_epsilon(
    certificate: AccountCertificate,
    spent: Composition,
    *,
    epsilon: float,
    delta: float,
    reserved: float,
) -> float:
    """Return the ε that an adaptive account with this δ needs for `spent`; ∞ if no ε is enough.

    It grows with the one number that the certificate adds up. Comparing it with the budget's ε is
    therefore the same as comparing that number with its limit.

    Args:
        epsilon, delta: the account's budget.
        reserved: δₐ, the part of δ that is reserved for approximations.
    """
    counts = spent.counts
    only_pure = all(isinstance(event, Pure) for event in counts)
    if certificate is AccountCertificate.PURE:
        # Each release pays for its sampler at its own ε, so Σδ is a filter next to Σε.
        largest = max((e.epsilon for e in counts if isinstance(e, Pure)), default=0.0)
        fits = only_pure and spent.compute_sampler_delta(largest) <= delta
        return sum_pure_epsilon(counts) if fits else math.inf
    if compute_used_delta(spent, epsilon=epsilon, reserved=reserved) > reserved:
        return math.inf
    left = math.nextafter(delta - reserved, 0.0)
    if certificate is AccountCertificate.GAUSSIAN:
        mus = {event: compute_mu(event) for event in counts}
        found = math.inf
        if all(map(math.isfinite, mus.values())):
            squares = (to_fraction(mu) ** 2 * counts[event] for event, mu in mus.items())
            found = compute_gaussian_epsilon(round_root_up(sum(squares, Fraction(0))), left)
    else:
        rho = sum((compute_rho(event) * n for event, n in counts.items()), Fraction(0))
        found = compute_cks20_epsilon(round_up(rho), left)
    if spent.sampler_distance and found > _compute_largest_epsilon(reserved):
        found = math.inf  # the samplers' distance was paid at that ε
    if only_pure and spent.compute_sampler_delta(epsilon) <= reserved:
        return min(found, sum_pure_epsilon(counts))
    return found
