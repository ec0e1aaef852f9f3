"""Accountants: compute ε at a δ from counted events, each for the events it is proved for.

| accountant | proved for | ε |
|---|---|---|
| exact | Gaussians | one Gaussian of μ = √Σμ² (Balle & Wang 2018, Theorem 8), δ > 0 |
| cks20 | everything | from Σρ (Canonne, Kamath & Steinke 2020, Proposition 12), δ > 0 |
| zcdp | everything | from Σρ (Bun & Steinke 2016, Proposition 1.3), δ > 0 |
| pure | pure events | Σε (Dwork & Roth 2014, Theorem 3.16) |
| mixed | pure and other events | Σε of the pure ones, plus the rest's: exact or cks20 |
| rdp | DP-SGD steps (behind coins too) and anything | RDP of the steps plus αρ of the rest, δ > 0 |
| pld | the same steps, Gaussians, pure | privacy loss distributions convolved, δ > 0 |

ρ adds up (Bun & Steinke 2016, Lemma 1.7) and μ² adds up (Dong, Roth & Su 2022, Corollary 3.3),
adaptively, for events that were fixed beforehand. docs/privacy.md, section 7, covers events that
are chosen by earlier answers.

An accountant is one function and one row of `ACCOUNTANTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from types import UnionType
from typing import get_args

from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.gaussian_curve import (
    compute_cks20_epsilon,
    compute_gaussian_epsilon,
    compute_zcdp_epsilon,
)
from parley.privacy.accounting.privacy_events import (
    CountedSteps,
    GaussianEvent,
    PrivacyEvent,
    Pure,
    Step,
    sort_steps,
)
from parley.privacy.accounting.rounding import round_root_up, round_up, sum_up, to_fraction

Counts = Mapping[PrivacyEvent, int]
"""Events with their own curve → their number."""

Curve = Callable[[float], float]
"""δ → ε; ∞ if there is none."""

_ZERO = Fraction(0)


@dataclass(frozen=True, kw_only=True)
class Accountant:
    """A method to compute ε from counted events.

    Attributes:
        supports: whether the method is proved for these events.
        curve: supported events → an upper bound on ε at a δ; ∞ if there is none.
        sampled: the ε at which the samplers' distance is paid, given the total ε
            (`compute_sampler_epsilon`).
    """

    supports: Callable[[Counts], bool]
    curve: Callable[[Counts], Curve]
    sampled: Callable[[Counts, float], float] = lambda _counts, epsilon: epsilon


def compute_total_mu(counts: Counts) -> float:
    """Return √Σμ² of the Gaussians among the events, rounded up."""
    squares = (e.exact_rho * (2 * n) for e, n in counts.items() if isinstance(e, GaussianEvent))
    return round_root_up(sum(squares, _ZERO))


def sum_pure_epsilon(counts: Counts) -> float:
    """Return Σε of the pure events, rounded up."""
    return round_up(
        sum((to_fraction(e.epsilon) * n for e, n in counts.items() if isinstance(e, Pure)), _ZERO)
    )


def compute_total_rho(counts: Counts, *excluded: type[PrivacyEvent]) -> float:
    """Return Σρ of the events that are not of an `excluded` kind, rounded up."""
    return _sum_rho(frozenset((e, n) for e, n in counts.items() if not isinstance(e, excluded)))


@lru_cache(maxsize=64)  # several accountants need the same sum
def _sum_rho(counts: frozenset[tuple[PrivacyEvent, int]]) -> float:
    return round_up(sum((event.exact_rho * n for event, n in counts), _ZERO))


def _select_steps(counts: Counts) -> CountedSteps:
    return sort_steps({e: n for e, n in counts.items() if isinstance(e, Step)})


def _build_all_check(*kinds: type[PrivacyEvent] | UnionType) -> Callable[[Counts], bool]:
    return lambda counts: all(isinstance(event, kinds) for event in counts)


def _build_any_check(kind: type[PrivacyEvent] | UnionType) -> Callable[[Counts], bool]:
    return lambda counts: any(isinstance(event, kind) for event in counts)


def _build_pure_curve(counts: Counts) -> Curve:
    epsilon = sum_pure_epsilon(counts)
    return lambda _delta: epsilon


def _build_mixed_curve(counts: Counts) -> Curve:
    # Basic composition of (Σε, 0) and (ε′, δ): Dwork & Roth 2014, Theorem 3.16.
    pure = sum_pure_epsilon(counts)
    mu = compute_total_mu(counts)
    rest = compute_total_rho(counts, Pure)
    if _build_all_check(GaussianEvent, Pure)(counts):
        return lambda delta: sum_up(pure, compute_gaussian_epsilon(mu, delta))
    return lambda delta: sum_up(pure, compute_cks20_epsilon(rest, delta))


def compute_sampler_epsilon(counts: Counts, epsilon: float) -> float:
    """Return the ε at which any event's distance γ from its law costs at most (1 + e^ε)·γ.

    Basic composition adds up the parts' δ. Each part's δ is paid at that part's ε, not at the sum:
    a pure event's at its own ε, all others' at the rest of the total. The order does not matter,
    because the parts are interactive mechanisms that run concurrently (Vadhan & Zhang 2023,
    arXiv:2207.08335, for (ε, δ)). The composition does not record which part a distance belongs to,
    so the largest ε is returned.
    """
    single = max((e.epsilon for e in counts if isinstance(e, Pure)), default=0.0)
    rest = 0.0
    if not _build_all_check(Pure)(counts):
        rest = sum_up(epsilon, -math.nextafter(sum_pure_epsilon(counts), 0.0))
    return max(single, rest)


_SAMPLED = "parley.privacy.accounting.subsampled_gaussian"
"""Accounts of sampled steps, which other jobs do not import."""


def _build_rdp_curve(counts: Counts) -> Curve:
    steps, rest = _select_steps(counts), compute_total_rho(counts, *get_args(Step))
    compute_rdp_epsilon = load_attribute(f"{_SAMPLED}:compute_rdp_epsilon")
    return lambda delta: compute_rdp_epsilon(steps, delta=delta, rho=rest)


def _build_pld_curve(counts: Counts) -> Curve:
    steps, mu, pure = _select_steps(counts), compute_total_mu(counts), sum_pure_epsilon(counts)
    compute_pld_epsilon = load_attribute(f"{_SAMPLED}:compute_pld_epsilon")
    return lambda delta: compute_pld_epsilon(steps, delta=delta, mu=mu, pure=pure)


ACCOUNTANTS: dict[str, Accountant] = {
    "exact": Accountant(
        supports=_build_all_check(GaussianEvent),
        curve=lambda counts: partial(compute_gaussian_epsilon, compute_total_mu(counts)),
    ),
    "cks20": Accountant(
        supports=_build_all_check(PrivacyEvent),
        curve=lambda counts: partial(compute_cks20_epsilon, compute_total_rho(counts)),
    ),
    "zcdp": Accountant(
        supports=_build_all_check(PrivacyEvent),
        curve=lambda counts: partial(compute_zcdp_epsilon, compute_total_rho(counts)),
    ),
    "pure": Accountant(
        supports=_build_all_check(Pure), curve=_build_pure_curve, sampled=compute_sampler_epsilon
    ),
    "mixed": Accountant(
        supports=lambda counts: (
            _build_any_check(Pure)(counts) and not _build_all_check(Pure)(counts)
        ),
        curve=_build_mixed_curve,
        sampled=compute_sampler_epsilon,
    ),
    "rdp": Accountant(supports=_build_any_check(Step), curve=_build_rdp_curve),
    "pld": Accountant(
        supports=lambda counts: (
            _build_any_check(Step)(counts) and _build_all_check(Step, GaussianEvent, Pure)(counts)
        ),
        curve=_build_pld_curve,
    ),
}
"""Name → accountant. In a tie the first is used."""
