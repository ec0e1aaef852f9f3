"""The methods: from scores and residuals to a bound, and whether it refutes the claim.

| method | assumes | refutes where |
|---|---|---|
| pair | nothing | its ε is above the claim |
| mu | a Gaussian curve, which is what is claimed | its μ is above the claimed |
| profile | nothing; the bound's number is of Gaussian steps | a point of the claimed curve fails |
| factor | the law's shape | the scale is surely less than the claimed |
| white | nothing | noise repeats itself at some lag |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parley.privacy.accounting.composition import Composition
from parley.privacy.audit.claimed_curve import ClaimedCurve, profile_event, profile_multiplier
from parley.privacy.audit.counts import Hits
from parley.privacy.audit.events import Event, best_event, middle_threshold
from parley.privacy.audit.noise_scale import Residuals, shape_p
from parley.privacy.audit.pair import (
    gaussian_epsilon_lower,
    mu_ceiling,
    mu_lower,
    pair_ceiling,
    pair_epsilon,
)
from parley.privacy.audit.whiteness import repeated_lag
from parley.simulations.audit.audited import Audited
from parley.simulations.audit.observed import Observed, bare_noise
from parley.simulations.audit.scores import Scores

__all__ = ["METHODS", "Finding", "Method", "Pilot", "choose_events", "fitting_methods"]

_SHAPE_ALPHA = 1e-6


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """Events that were chosen on their own trials.

    Attributes:
        trials: a world, that chose them.
        events: by method.
    """

    trials: int
    events: dict[str, Event]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one method says of what was observed."""

    epsilon_lower: float | None
    refuted: bool
    mu_lower: float | None = None
    ceiling: float | None = None
    hits: tuple[int, int] = (0, 0)
    threshold: float | None = None
    noise_scale: tuple[float, float] | None = None
    fraction: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to a bound.

    Attributes:
        assumption: in words.
        fits: whether a claim has what it needs.
        find: audited, event, worlds with and without the canary, reach, α → what it says.
        event: audited, pilot scores with and without, trials, α → the event; None: it needs none.
    """

    assumption: str
    fits: Callable[[Audited], bool]
    find: Callable[[Audited, Event | None, Observed, Observed, float, float], Finding]
    event: Callable[[Audited, Scores, Scores, int, float], Event] | None = None


def fitting_methods(audited: Audited) -> list[str]:
    """Those that a claim has what they need for."""
    return [name for name, method in METHODS.items() if method.fits(audited)]


def choose_events(
    audited: Audited, methods: list[str], inside: Scores, outside: Scores, trials: int, alpha: float
) -> Pilot:
    """The event of every method, from pilot worlds alone."""
    chosen = {
        name: method.event(audited, inside, outside, trials, alpha)
        for name in methods
        if (method := METHODS[name]).event is not None
    }
    return Pilot(trials=inside.size, events=chosen)


def _counted(event: Event | None, inside: Observed, outside: Observed) -> tuple[Hits, Hits]:
    if event is None:
        raise ValueError("Expected an event for this method, got none.")
    return event.count(inside.scores, outside.scores)


def _pair(
    audited: Audited,
    event: Event | None,
    inside: Observed,
    outside: Observed,
    reach: float,
    alpha: float,
) -> Finding:
    del reach
    hits = _counted(event, inside, outside)
    epsilon = pair_epsilon(*hits, alpha=alpha, delta=audited.delta)
    return Finding(
        epsilon_lower=epsilon,
        refuted=epsilon > audited.epsilon,
        ceiling=pair_ceiling(hits[0].trials, alpha=alpha, delta=audited.delta),
        hits=(hits[0].hits, hits[1].hits),
        threshold=None if event is None else event.threshold,
        fraction=epsilon / audited.epsilon,
    )


def _mu(
    audited: Audited,
    event: Event | None,
    inside: Observed,
    outside: Observed,
    reach: float,
    alpha: float,
) -> Finding:
    del reach
    hits = _counted(event, inside, outside)
    mu = mu_lower(hits[1], hits[0].misses, alpha=alpha)
    claimed = audited.mu or math.inf
    most = mu_ceiling(hits[0].trials, alpha=alpha)
    return Finding(
        epsilon_lower=gaussian_epsilon_lower(mu, audited.delta),
        mu_lower=mu,
        refuted=mu > claimed,
        ceiling=gaussian_epsilon_lower(most, audited.delta),
        hits=(hits[0].hits, hits[1].hits),
        threshold=None if event is None else event.threshold,
        fraction=mu / claimed,
    )


def _profile(
    audited: Audited,
    event: Event | None,
    inside: Observed,
    outside: Observed,
    reach: float,
    alpha: float,
) -> Finding:
    del reach
    hits_in, hits_out = _counted(event, inside, outside)
    counts: dict[str, Hits] = {"hits_in": hits_in, "hits_out": hits_out}
    claim = ClaimedCurve.of(audited.spent, delta=audited.delta)
    mechanism: Any = audited.charged.mechanism
    multiplier = profile_multiplier(
        mechanism.noise_multiplier,
        lambda value: ClaimedCurve.of(_steps(audited, value), points=24),
        **counts,
        alpha=alpha,
    )
    epsilon = _steps(audited, multiplier).epsilon(audited.delta)[1]
    return Finding(
        epsilon_lower=epsilon,
        refuted=claim.refuted_by(**counts, alpha=alpha),
        hits=(hits_in.hits, hits_out.hits),
        threshold=None if event is None else event.threshold,
        fraction=epsilon / audited.epsilon,
        note=f"noise multiplier at most {multiplier:.4g}, claimed {mechanism.noise_multiplier:.4g}",
    )


def _factor(
    audited: Audited,
    event: Event | None,
    inside: Observed,
    outside: Observed,
    reach: float,
    alpha: float,
) -> Finding:
    del event
    seen = _together(inside, outside)
    high, low = seen.scale_upper(alpha / 2), seen.scale_lower(alpha / 2)
    kept = np.concatenate([inside.kept, outside.kept])
    shape = shape_p(seen.law, kept, 1.0)
    # At its own size: a wrong scale is the factor's to find, a wrong shape this test's.
    own = shape_p(seen.law, kept / _typical(seen), 1.0)
    epsilon = _scaled(audited, high / min(reach, 1.0)).epsilon(audited.delta)[1]
    note = f"shape p = {shape:.2g}"
    if own < _SHAPE_ALPHA:
        note += "; the residuals have not the law's shape"
    return Finding(
        epsilon_lower=epsilon,
        # Whatever part of the sensitivity the canaries reach: there is less noise than claimed.
        refuted=high < 1.0,
        noise_scale=(low, high),
        fraction=min(reach, 1.0) / high if audited.mu else epsilon / audited.epsilon,
        note=note,
    )


def _white(
    audited: Audited,
    event: Event | None,
    inside: Observed,
    outside: Observed,
    reach: float,
    alpha: float,
) -> Finding:
    del audited, event, reach, alpha
    found = repeated_lag(inside.kept) or repeated_lag(outside.kept)
    if found is None:
        return Finding(epsilon_lower=None, refuted=False)
    return Finding(
        epsilon_lower=None,
        refuted=True,
        note=f"noise repeats at lag {found.lag}: z = {found.z:.3g}",
    )


def _together(inside: Observed, outside: Observed) -> Residuals:
    if inside.residuals is None or outside.residuals is None:
        raise ValueError("Expected bare noise, got none.")
    return inside.residuals + outside.residuals


def _typical(seen: Residuals) -> float:
    """The scale that the residuals' size is most likely of."""
    count = seen.vectors * seen.dimension
    return float((seen.total / count) ** (1 / seen.power))


def _scaled(audited: Audited, ratio: float) -> Composition:
    """What all releases would be charged, were the noise `ratio` times the claimed."""
    mechanism: Any = audited.charged.mechanism
    if mechanism.training is not None:
        return _steps(audited, mechanism.noise_multiplier * ratio)
    if hasattr(mechanism, "sigma"):
        less = replace(mechanism, sigma=mechanism.sigma * ratio)
    else:
        less = replace(mechanism, epsilon=mechanism.epsilon / ratio)
    shares = audited.charged.shares
    event = less.event() if shares is None else shares.event(less)
    return Composition.empty().add(event, count=audited.rounds)


def _steps(audited: Audited, multiplier: float) -> Composition:
    steps: Any = audited.charged.mechanism
    event = replace(steps, noise_multiplier=multiplier).event()
    return Composition.empty().add(event, count=audited.rounds)


def _pair_event(
    audited: Audited, inside: Scores, outside: Scores, trials: int, alpha: float
) -> Event:
    return best_event(inside, outside, trials=trials, alpha=alpha, delta=audited.delta)


def _middle_event(
    audited: Audited, inside: Scores, outside: Scores, trials: int, alpha: float
) -> Event:
    del audited, trials, alpha
    return Event(threshold=middle_threshold(inside, outside))


def _profile_event(
    audited: Audited, inside: Scores, outside: Scores, trials: int, alpha: float
) -> Event:
    mechanism: Any = audited.charged.mechanism
    return profile_event(
        mechanism.noise_multiplier,
        lambda value: ClaimedCurve.of(_steps(audited, value), points=24),
        inside,
        outside,
        trials=trials,
        alpha=alpha,
    )


def _sampled(audited: Audited) -> bool:
    steps = audited.charged.mechanism.training
    return steps is not None and steps.sampling_rate < 1


METHODS: dict[str, Method] = {
    "pair": Method(assumption="none", fits=lambda audited: True, find=_pair, event=_pair_event),
    "mu": Method(
        assumption="Gaussian curve",
        fits=lambda audited: audited.mu is not None,
        find=_mu,
        event=_middle_event,
    ),
    "profile": Method(
        assumption="none; its number: Gaussian steps",
        fits=_sampled,
        find=_profile,
        event=_profile_event,
    ),
    "factor": Method(assumption="shape of the law", fits=bare_noise, find=_factor),
    "white": Method(assumption="none", fits=bare_noise, find=_white),
}
