"""Accountants: from counted events to ε at a δ, each for the events it is proved for.

| accountant | proved for | ε |
|---|---|---|
| exact | Gaussians | one Gaussian of μ = √Σμ² (Balle & Wang 2018, Theorem 8), δ > 0 |
| cks20 | everything | from Σρ (Canonne, Kamath & Steinke 2020, Proposition 12), δ > 0 |
| zcdp | everything | from Σρ (Bun & Steinke 2016, Proposition 1.3), δ > 0 |
| pure | pure events | Σε (Dwork & Roth 2014, Theorem 3.16) |
| mixed | pure and other events | Σε of the pure ones, plus the rest's: exact or cks20 |
| rdp | DP-SGD steps (behind coins too) and anything | RDP of the steps plus αρ of the rest, δ > 0 |
| pld | the same steps, Gaussians, pure | privacy loss distributions convolved, δ > 0 |

ρ adds (Bun & Steinke 2016, Lemma 1.7), μ² adds (Dong, Roth & Su 2022, Corollary 3.3), adaptively,
of events that were fixed before; docs/privacy.md, section 7, has what holds where answers choose.
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

from parley.privacy.accounting import subsampled_gaussian
from parley.privacy.accounting.gaussian_curve import cks20_epsilon, gaussian_epsilon, zcdp_epsilon
from parley.privacy.accounting.privacy_events import Event, Gaussian, Pure, Step
from parley.privacy.accounting.rounding import exact, root_up, round_up, sum_up

Counts = Mapping[Event, int]
"""Events with their own curve → how many there were."""

Curve = Callable[[float], float]
"""δ → ε; ∞ where there is none."""

_ZERO = Fraction(0)


@dataclass(frozen=True, kw_only=True)
class Accountant:
    """One way from counted events to ε.

    Attributes:
        supports: whether it is proved for these events.
        curve: events that it supports → ε at a δ, an upper end; ∞ where there is none.
        sampled: at what ε the samplers' distance is paid for, of ε in all (`by_parts`).
    """

    supports: Callable[[Counts], bool]
    curve: Callable[[Counts], Curve]
    sampled: Callable[[Counts, float], float] = lambda _counts, epsilon: epsilon


def total_mu(counts: Counts) -> float:
    """√Σμ² of the Gaussians among the events, rounded up."""
    squares = (e.exact_rho * (2 * n) for e, n in counts.items() if isinstance(e, Gaussian))
    return root_up(sum(squares, _ZERO))


def _pure_epsilon(counts: Counts) -> float:
    return round_up(
        sum((exact(e.epsilon) * n for e, n in counts.items() if isinstance(e, Pure)), _ZERO)
    )


def total_rho(counts: Counts, *without: type[Event]) -> float:
    """Σρ of the events that are none of `without`, rounded up."""
    return _summed_rho(frozenset((e, n) for e, n in counts.items() if not isinstance(e, without)))


@lru_cache(maxsize=64)  # several accountants ask for the same sum
def _summed_rho(counts: frozenset[tuple[Event, int]]) -> float:
    return round_up(sum((event.exact_rho * n for event, n in counts), _ZERO))


def _steps(counts: Counts) -> subsampled_gaussian.CountedSteps:
    return subsampled_gaussian.in_order({e: n for e, n in counts.items() if isinstance(e, Step)})


def _only(*kinds: type[Event] | UnionType) -> Callable[[Counts], bool]:
    return lambda counts: all(isinstance(event, kinds) for event in counts)


def _any(kind: type[Event] | UnionType) -> Callable[[Counts], bool]:
    return lambda counts: any(isinstance(event, kind) for event in counts)


def _pure(counts: Counts) -> Curve:
    epsilon = _pure_epsilon(counts)
    return lambda _delta: epsilon


def _mixed(counts: Counts) -> Curve:
    # Basic composition of (Σε, 0) and (ε′, δ): Dwork & Roth 2014, Theorem 3.16.
    pure, mu, rest = _pure_epsilon(counts), total_mu(counts), total_rho(counts, Pure)
    if _only(Gaussian, Pure)(counts):
        return lambda delta: sum_up(pure, gaussian_epsilon(mu, delta))
    return lambda delta: sum_up(pure, cks20_epsilon(rest, delta))


def by_parts(counts: Counts, epsilon: float) -> float:
    """The ε at which a distance γ of any of these events from its law costs (1 + e^ε)·γ at most.

    Basic composition adds up the parts' δ, each paid at its own ε, and not at the sum's: a pure
    event's at its own, all others' at what is left of the whole. In any order: the parts are
    interactive mechanisms that run at once (Vadhan & Zhang 2023, arXiv:2207.08335, for (ε, δ)).
    Which part a distance belongs to is not kept, so the largest is taken.
    """
    single = max((e.epsilon for e in counts if isinstance(e, Pure)), default=0.0)
    rest = 0.0
    if not _only(Pure)(counts):
        rest = sum_up(epsilon, -math.nextafter(_pure_epsilon(counts), 0.0))
    return max(single, rest)


def _rdp(counts: Counts) -> Curve:
    steps, rest = _steps(counts), total_rho(counts, *get_args(Step))
    return lambda delta: subsampled_gaussian.rdp_epsilon(steps, delta=delta, rho=rest)


def _pld(counts: Counts) -> Curve:
    steps, mu, pure = _steps(counts), total_mu(counts), _pure_epsilon(counts)
    return lambda delta: subsampled_gaussian.pld_epsilon(steps, delta=delta, mu=mu, pure=pure)


ACCOUNTANTS: dict[str, Accountant] = {
    "exact": Accountant(
        supports=_only(Gaussian), curve=lambda counts: partial(gaussian_epsilon, total_mu(counts))
    ),
    "cks20": Accountant(
        supports=_only(Event), curve=lambda counts: partial(cks20_epsilon, total_rho(counts))
    ),
    "zcdp": Accountant(
        supports=_only(Event), curve=lambda counts: partial(zcdp_epsilon, total_rho(counts))
    ),
    "pure": Accountant(supports=_only(Pure), curve=_pure, sampled=by_parts),
    "mixed": Accountant(
        supports=lambda counts: _any(Pure)(counts) and not _only(Pure)(counts),
        curve=_mixed,
        sampled=by_parts,
    ),
    "rdp": Accountant(supports=_any(Step), curve=_rdp),
    "pld": Accountant(
        supports=lambda counts: _any(Step)(counts) and _only(Step, Gaussian, Pure)(counts),
        curve=_pld,
    ),
}
"""The accountants by name; a tie goes to the first."""
