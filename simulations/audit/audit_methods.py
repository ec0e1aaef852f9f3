"""The methods: from scores and residuals to a bound, and whether it refutes the claim.

| method | assumes | refutes where |
|---|---|---|
| pair | nothing | its ε is above the claim |
| mu | a Gaussian curve, which is what is claimed | its μ is above the claimed |
| profile | nothing; the bound's number is of Gaussian steps | a point of the claimed curve fails |
| factor | the law's shape | the scale is surely less than the claimed |
| white | nothing | noise repeats itself at some lag |
| one-run | nothing | its ε, of coins guessed right, is above the claim |
| one-run-fdp | a Gaussian curve, likewise | its μ is above the claimed |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import Event as Charge
from parley.privacy.audit.claimed_curve import ClaimedCurve, profile_event, profile_ratio
from parley.privacy.audit.event_counts import Event, Hits, best_event, middle_threshold
from parley.privacy.audit.noise_scale import repeated_lag, shape_p
from parley.privacy.audit.one_run import surest_guesses
from parley.privacy.audit.world_pair import gaussian_epsilon_lower, mu_ceiling, mu_lower
from parley.simulations.audit.audit_results import Finding, pair_finding
from parley.simulations.audit.audit_target import Audited
from parley.simulations.audit.observed_worlds import Observed, bare_noise

_SHAPE_ALPHA = 1e-6
_NONE = 1e-6

_PARTS = tuple((part, 1 / 3) for part in (1, 4, 16))
"""Guesses: all coins, a quarter, a sixteenth; each at a third of α."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a method is given.

    Attributes:
        event: that its pilot chose; None where the method needs none.
        inside, outside: worlds with the canary and without, none of the pilot's.
        reach: of the sensitivity, by the canaries; None: noise is not added to it.
    """

    audited: Audited
    event: Any
    inside: Observed
    outside: Observed
    reach: float | None
    alpha: float

    def hits(self) -> tuple[Hits, Hits]:
        """Of the event, in worlds with the canary and without."""
        found: tuple[Hits, Hits] = self.event.count(self.inside.scores, self.outside.scores)
        return found


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to a bound.

    Attributes:
        event: how it chooses its event, from pilot worlds alone, and how many worlds of each kind
            it will be counted on; None: it needs none.
    """

    assumption: str
    fits: Callable[[Audited], bool]
    find: Callable[[Seen], Finding]
    event: Callable[[Seen, int], Event] | None = None


def _pair(seen: Seen) -> Finding:
    audited = seen.audited
    of_model = audited.records is not None
    return pair_finding(
        seen.hits(),
        alpha=seen.alpha,
        delta=audited.delta,
        claimed=audited.epsilon,
        threshold=seen.event.threshold,
        note=_told_apart(seen) if of_model else "",
    )


def _mu(seen: Seen) -> Finding:
    audited, hits = seen.audited, seen.hits()
    mu = mu_lower(hits[1], hits[0].misses, alpha=seen.alpha)
    claimed = math.inf if audited.mu is None else audited.mu
    most = mu_ceiling(hits[0].trials, alpha=seen.alpha)
    return Finding(
        epsilon_lower=gaussian_epsilon_lower(mu, audited.delta),
        mu_lower=mu,
        refuted=mu > claimed,
        ceiling=gaussian_epsilon_lower(most, audited.delta),
        hits_in=hits[0].hits,
        hits_out=hits[1].hits,
        threshold=seen.event.threshold,
        fraction_of_claim=mu / claimed if claimed else None,
    )


def _profile(seen: Seen) -> Finding:
    audited, (hits_in, hits_out) = seen.audited, seen.hits()
    counts: dict[str, Hits] = {"hits_in": hits_in, "hits_out": hits_out}
    claim = ClaimedCurve.of(audited.spent, delta=audited.delta)
    ratio = profile_ratio(_curve(audited), **counts, alpha=seen.alpha)
    epsilon = _scaled(audited, ratio).epsilon(audited.delta)[1]
    return Finding(
        epsilon_lower=epsilon,
        refuted=claim.refuted_by(**counts, alpha=seen.alpha),
        hits_in=hits_in.hits,
        hits_out=hits_out.hits,
        threshold=seen.event.threshold,
        fraction_of_claim=audited.part_of_claim(epsilon),
        note=f"noise at most {ratio:.4f} of the claimed",
    )


def _factor(seen: Seen) -> Finding:
    audited: Any = seen.audited
    noise: Any = seen.inside.residuals
    noise += seen.outside.residuals
    high, low = noise.scale_upper(seen.alpha / 2), noise.scale_lower(seen.alpha / 2)
    kept = np.concatenate([seen.inside.kept, seen.outside.kept])
    # At its own size: a wrong scale is the factor's to find, a wrong shape this test's.
    typical = (noise.total / (noise.vectors * noise.dimension)) ** (1 / noise.power)
    own = shape_p(noise.law, kept / typical, 1.0)
    reach = min(seen.reach or 0.0, 1.0)
    # Canaries that another clip hides show nothing of the sensitivity.
    epsilon = _scaled(audited, high / reach).epsilon(audited.delta)[1] if reach > _NONE else 0.0
    note = f"shape p = {shape_p(noise.law, kept, 1.0):.2g}"
    if own < _SHAPE_ALPHA:
        note += "; the residuals have not the law's shape"
    return Finding(
        epsilon_lower=epsilon,
        # Whatever part of the sensitivity the canaries reach: there is less noise than claimed.
        refuted=high < 1.0,
        noise_scale=(low, high),
        fraction_of_claim=reach / high if audited.mu else audited.part_of_claim(epsilon),
        note=note,
    )


def _white(seen: Seen) -> Finding:
    found = repeated_lag(seen.inside.kept) or repeated_lag(seen.outside.kept)
    note = "" if found is None else f"noise repeats at lag {found.lag}: z = {found.z:.3g}"
    return Finding(epsilon_lower=None, refuted=found is not None, note=note)


def _one_run(seen: Seen, *, curve: bool) -> Finding:
    audited = seen.audited
    scores = np.concatenate([seen.inside.scores, seen.outside.scores])
    right = np.concatenate([seen.inside.scores > 0, seen.outside.scores <= 0])
    best = surest_guesses(scores, right, _PARTS, alpha=seen.alpha, delta=audited.delta)
    bound, guesses, hits = best["one-run-fdp" if curve else "one-run"]
    claimed = audited.mu if curve and audited.mu is not None else audited.epsilon
    return Finding(
        hits_in=hits,
        hits_out=guesses - hits,
        epsilon_lower=gaussian_epsilon_lower(bound, audited.delta) if curve else bound,
        mu_lower=bound if curve else None,
        fraction_of_claim=bound / claimed if claimed else None,
        refuted=bound > claimed,
        note=f"{hits} of {guesses} guesses right; {_told_apart(seen, 0.01, 0.001)}",
    )


def _told_apart(seen: Seen, *rates: float) -> str:
    """The chance that a score with the canary is above one without, and what is found at rates."""
    inside, ordered = seen.inside.scores, np.sort(seen.outside.scores)
    # Ties count half.
    below = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
    parts = [f"AUC {below.mean() / (2 * ordered.size):.3f}"]
    for rate in rates:
        found = (inside > np.quantile(ordered, 1 - rate)).mean()
        parts.append(f"true positives at {100 * rate:g} % false ones {found:.4f}")
    return "; ".join(parts)


def _scaled(audited: Audited, ratio: float) -> Composition:
    """What all releases would be charged, were the noise `ratio` times the claimed."""
    return Composition.empty().add(_event(audited, ratio), count=audited.rounds)


def _event(audited: Audited, ratio: float) -> Charge:
    """What one release would be charged, were the noise `ratio` times the claimed."""
    mechanism: Any = audited.charged.mechanism
    # The number that the noise of a law is proportional to, or inversely.
    if hasattr(mechanism, "noise_multiplier"):
        less = replace(mechanism, noise_multiplier=mechanism.noise_multiplier * ratio)
    elif hasattr(mechanism, "sigma"):
        less = replace(mechanism, sigma=mechanism.sigma * ratio)
    else:
        less = replace(mechanism, epsilon=mechanism.epsilon / ratio)
    shares = audited.charged.shares
    return less.event() if shares is None else shares.event(less)


def _curve(audited: Audited) -> Callable[[float], ClaimedCurve]:
    """Noise over the claimed → the curve that it would be charged by."""
    by = audited.accountant
    return lambda ratio: _curve_of(_event(audited, ratio), audited.rounds, by)


@lru_cache(maxsize=256)
def _curve_of(event: Charge, rounds: int, by: str) -> ClaimedCurve:
    """Kept: every attack on one claim asks for the same."""
    return ClaimedCurve.of(Composition.empty().add(event, count=rounds), points=24, by=by)


def _pair_event(pilot: Seen, trials: int) -> Event:
    return best_event(
        pilot.inside.scores,
        pilot.outside.scores,
        trials=trials,
        alpha=pilot.alpha,
        delta=pilot.audited.delta,
    )


def _middle_event(pilot: Seen, trials: int) -> Event:
    del trials
    return Event(threshold=middle_threshold(pilot.inside.scores, pilot.outside.scores))


def _profile_event(pilot: Seen, trials: int) -> Event:
    return profile_event(
        _curve(pilot.audited),
        pilot.inside.scores,
        pilot.outside.scores,
        # As sure as the pilot itself: nothing seen of an event says little, and would win else.
        trials=min(trials, pilot.inside.scores.size),
        alpha=pilot.alpha,
    )


METHODS: dict[str, Method] = {
    "pair": Method(
        assumption="none",
        fits=lambda audited: not audited.by_halves,
        find=_pair,
        event=_pair_event,
    ),
    "mu": Method(
        assumption="Gaussian curve",
        fits=lambda audited: audited.mu is not None and audited.records is None,
        find=_mu,
        event=_middle_event,
    ),
    "profile": Method(
        assumption="none; its number: Gaussian steps",
        fits=lambda audited: audited.by_coins and audited.records is None,
        find=_profile,
        event=_profile_event,
    ),
    "factor": Method(assumption="shape of the law", fits=bare_noise, find=_factor),
    "white": Method(assumption="none", fits=bare_noise, find=_white),
    "one-run": Method(
        assumption="none",
        fits=lambda audited: audited.by_halves,
        find=partial(_one_run, curve=False),
    ),
    "one-run-fdp": Method(
        assumption="Gaussian curve",
        fits=lambda audited: audited.by_halves and audited.mu is not None,
        find=partial(_one_run, curve=True),
    ),
}
