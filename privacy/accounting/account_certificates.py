"""Certificates: the fixed test by which an account admits releases under full adaptivity.

The analyst may choose the kind, size and number of the next releases, and when to stop, from all
earlier answers. A bound that still holds then is a *filter*: one number per release, added up and
compared with a limit that was fixed when the account was opened.

| certificate | adds up | admits while | theorem |
|---|---|---|---|
| pure | ε | Σε ≤ ε | Rogers, Roth, Ullman & Vadhan 2016, basic composition |
| gaussian | μ² | Σμ² ≤ μ(ε, δ − δₐ)² | Smith & Thakurta 2022; Koskela et al. 2023 |
| zcdp | ρ | Σρ converts to ε at δ − δₐ | Feldman & Zrnic 2021; Whitehouse et al. 2023 |
| plan | events | the plan costs ε | any accountant: one run, fixed beforehand |

In addition to the middle two tests, releases that are all pure are admitted while Σε ≤ ε. Such
transcripts have a likelihood ratio of at most e^ε. All other transcripts stay within the filter, so
they are outcomes of the interaction that stops before it leaves the filter. Both parts of an event
add up to e^ε·Q + δ. A third bound would cost its own δ.

δₐ is reserved for approximations, which add up separately: δ′ of planned DP-SGD steps, and (1 +
e^ε)·γ of samplers within distance γ of their laws.

    >>> from parley.privacy.accounting.privacy_events import GaussianEvent, Pure
    >>> round(compute_mu(Pure(epsilon=1.0)), 6), round(float(compute_rho(Pure(epsilon=1.0))), 6)
    (1.232035, 0.462117)
    >>> day = Composition.from_events([GaussianEvent(mu=0.1), Pure(epsilon=0.1)])
    >>> round(compute_account_epsilon(
    ...     AccountCertificate.ZCDP, day, epsilon=1.0, delta=1e-5, reserved=1e-7), 3)
    0.546
"""

from __future__ import annotations

import math
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from parley.privacy.accounting.accountants import sum_pure_epsilon
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_cks20_epsilon, compute_gaussian_epsilon
from parley.privacy.accounting.privacy_events import (
    BoundedRange,
    GaussianEvent,
    PlannedSteps,
    PrivacyEvent,
    Pure,
    Step,
    Zcdp,
)
from parley.privacy.accounting.rounding import round_root_up, round_up, to_fraction
from parley.privacy.special_functions import ndtri

BUDGET_TOLERANCE = 1e-9
"""Relative part of ε by which a total may exceed its limit.

Conversions solve an equation in double precision, and ε/T added T times may end an ulp above ε. The
total is what is compared, so a budget is never exceeded by more than this.
"""

_MIN_DISTANCE = 2.0**-70
"""Distance γ of samplers for which an account keeps room, however large its ε is."""


class AccountCertificate(StrEnum):
    """The test by which an account admits releases; chosen when it is opened, never changed."""

    PURE = "pure"
    GAUSSIAN = "gaussian"
    ZCDP = "zcdp"
    PLAN = "plan"
    LOWEST_BOUND = "lowest-bound"
    """The lowest of all accountants' bounds, for accounts opened before certificates existed."""

    @property
    def is_adaptive(self) -> bool:
        """Whether the bound holds if releases are chosen by earlier answers."""
        return self in (
            AccountCertificate.PURE,
            AccountCertificate.GAUSSIAN,
            AccountCertificate.ZCDP,
        )

    @property
    def calibration(self) -> str:
        """Calibration of Gaussian noise for which the account charges the requested ε."""
        return "cks20" if self is AccountCertificate.ZCDP else "exact"

    @property
    def validity(self) -> str:
        """The analysts for whom its ε holds, in words."""
        return {
            AccountCertificate.PLAN: "for one run that was planned beforehand",
            AccountCertificate.LOWEST_BOUND: "if kinds and sizes were not chosen by answers",
        }.get(self, "even if later releases depend on earlier answers")

    @property
    def description(self) -> str:
        """The analysts for whom its ε holds, and its name."""
        return f"{self.validity} (certificate {self})"


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


def epsilon_of_mu(certificate: AccountCertificate, mu: float, delta: float) -> float:
    """Return the ε at `delta` that an account charges for a μ-GDP release."""
    if certificate is AccountCertificate.ZCDP:
        return compute_cks20_epsilon(round_up(to_fraction(mu) ** 2 / 2), delta)
    return compute_gaussian_epsilon(mu, delta)


def get_planned_delta(event: PrivacyEvent) -> float:
    """Return δ′, the event's distance from one that has its μ or ρ; 0 except for planned steps."""
    return event.delta if isinstance(event, PlannedSteps) else 0.0


def compute_reserved_delta(delta: float, *, sampled: bool = False) -> float:
    """Return the default δₐ of an account; more if a job with sampled steps opens it."""
    return delta / (10 if sampled else 100)


def compute_used_delta(spent: Composition, *, epsilon: float, reserved: float) -> float:
    """Return the used part of δₐ, `reserved`, of an account whose budget is `epsilon`."""
    planned = math.fsum(get_planned_delta(event) * n for event, n in spent.counts.items())
    paid_at = min(epsilon, _compute_largest_epsilon(reserved))
    return planned * (1 + 1e-15) + spent.compute_sampler_delta(paid_at)


def _compute_largest_epsilon(reserved: float) -> float:
    """Return the largest ε at which the samplers' distance still fits into δₐ."""
    return math.log(max(reserved / _MIN_DISTANCE - 1, 1.0))


@lru_cache(maxsize=1024)
def compute_account_epsilon(
    certificate: AccountCertificate,
    spent: Composition,
    *,
    epsilon: float,
    delta: float,
    reserved: float,
) -> float:
    """Return the ε that an account with this δ would need for `spent`; ∞ if no ε is enough.

    It grows with the one number that the certificate adds up. Comparing it with the budget's ε is
    therefore the same as comparing that number with its limit.

    Args:
        epsilon, delta: the account's budget.
        reserved: δₐ, the part of δ that is reserved for approximations.
    """
    counts = spent.counts
    if not certificate.is_adaptive:
        return spent.compute_lowest_epsilon(delta)[1]
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


def is_planned(event: PrivacyEvent) -> bool:
    """Return whether the event is of sampled steps, which a shared account charges as one job."""
    return all(isinstance(leaf, Step) for leaf, _ in event.iterate_leaves())


def is_gaussian(event: PrivacyEvent) -> bool:
    """Return whether the event consists of Gaussian releases only."""
    return all(isinstance(leaf, GaussianEvent) for leaf, _ in event.iterate_leaves())
