"""Account certificates: the fixed test by which an account admits releases under full adaptivity.

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

`parley.privacy.accounting.privacy_filters` computes the totals. δₐ is reserved for approximations,
which add up separately: δ′ of planned DP-SGD steps, and (1 + e^ε)·γ of samplers within distance γ
of their laws.
"""

from __future__ import annotations

from enum import StrEnum

from parley.privacy.accounting.privacy_events import GaussianEvent, PrivacyEvent, Step

BUDGET_TOLERANCE = 1e-9
"""Relative part of ε by which a total may exceed its limit.

Conversions solve an equation in double precision, and ε/T added T times may end an ulp above ε. The
total is what is compared, so a budget is never exceeded by more than this.
"""


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


def compute_reserved_delta(delta: float, *, sampled: bool = False) -> float:
    """Return the default δₐ of an account; more if a job with sampled steps opens it."""
    return delta / (10 if sampled else 100)


def is_planned(event: PrivacyEvent) -> bool:
    """Return whether the event is of sampled steps, which a shared account charges as one job."""
    return all(isinstance(leaf, Step) for leaf, _ in event.iterate_leaves())


def is_gaussian(event: PrivacyEvent) -> bool:
    """Return whether the event consists of Gaussian releases only."""
    return all(isinstance(leaf, GaussianEvent) for leaf, _ in event.iterate_leaves())
