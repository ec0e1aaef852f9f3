"""Define the audit methods: from scores and residuals to a bound, and whether it refutes the claim.

| method | assumes | refutes if |
|---|---|---|
| pair | nothing | its ε is above the claim |
| mu | a Gaussian curve, which is what is claimed | its μ is above the claimed |
| profile | nothing; the bound's number is of Gaussian steps | a point of the claimed curve fails |
| factor | the distribution's shape | the scale is surely less than the claimed |
| white | nothing | noise repeats itself at some lag |
| one-run | nothing | its ε, from coins guessed right, is above the claim |
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
from parley.privacy.accounting.privacy_events import PrivacyEvent as Charge
from parley.privacy.audit.claimed_curve import ClaimedCurve, find_profile_event, profile_ratio
from parley.privacy.audit.event_counts import (
    Hits,
    ScoreEvent,
    compute_middle_threshold,
    find_best_event,
)
from parley.privacy.audit.noise_scale import repeated_lag, shape_p
from parley.privacy.audit.one_run import find_surest_guesses
from parley.privacy.audit.two_world_bounds import (
    compute_gaussian_lower,
    compute_mu_ceiling,
    compute_mu_lower,
)
from parley.simulations.audit.audit_results import Finding, build_pair_finding
from parley.simulations.audit.audit_target import AuditTarget
from parley.simulations.audit.trial_observations import ObservedWorlds, has_bare_noise

_SHAPE_ALPHA = 1e-6
_NONE = 1e-6

_PARTS = tuple((part, 1 / 3) for part in (1, 4, 16))
"""Parts of the coins that are guessed: all, a quarter, a sixteenth; each at a third of α."""


@dataclass(frozen=True, kw_only=True)
class MethodInput:
    """Input of a method.

    Attributes:
        event: chosen from its pilot; None if the method needs none.
        inside, outside: trials with the canary and without, none of them from the pilot.
        reach: share of the sensitivity that the canaries reach; None: noise is not added to it.
    """

    target: AuditTarget
    event: Any
    inside: ObservedWorlds
    outside: ObservedWorlds
    reach: float | None
    alpha: float

    def count_hits(self) -> tuple[Hits, Hits]:
        """Count the event in trials with the canary and without."""
        found: tuple[Hits, Hits] = self.event.count(self.inside.scores, self.outside.scores)
        return found


@dataclass(frozen=True)
class AuditMethod:
    """One method for a bound.

    Attributes:
        choose_event: how it chooses its event, from only pilot trials and the number of trials of
            each kind that will be counted; None: it needs none.
    """

    assumption: str
    is_applicable: Callable[[AuditTarget], bool]
    find_bound: Callable[[MethodInput], Finding]
    choose_event: Callable[[MethodInput, int], ScoreEvent] | None = None


def _find_pair_bound(inputs: MethodInput) -> Finding:
    audited = inputs.target
    return build_pair_finding(
        inputs.count_hits(),
        alpha=inputs.alpha,
        delta=audited.delta,
        claimed=audited.epsilon,
        threshold=inputs.event.threshold,
        note="" if audited.records is None else _format_error_rates(inputs),
    )


def _find_mu_bound(inputs: MethodInput) -> Finding:
    audited, hits = inputs.target, inputs.count_hits()
    mu = compute_mu_lower(hits[1], hits[0].misses, alpha=inputs.alpha)
    claimed = math.inf if audited.mu is None else audited.mu
    most = compute_mu_ceiling(hits[0].trials, alpha=inputs.alpha)
    return Finding(
        epsilon_lower=compute_gaussian_lower(mu, audited.delta),
        mu_lower=mu,
        refuted=mu > claimed,
        ceiling=compute_gaussian_lower(most, audited.delta),
        hits_in=hits[0].hits,
        hits_out=hits[1].hits,
        threshold=inputs.event.threshold,
        fraction_of_claim=mu / claimed if claimed else None,
    )


def _find_profile_bound(inputs: MethodInput) -> Finding:
    audited, (hits_in, hits_out) = inputs.target, inputs.count_hits()
    counts: dict[str, Hits] = {"hits_in": hits_in, "hits_out": hits_out}
    claim = ClaimedCurve.of(audited.spent, delta=audited.delta)
    ratio = profile_ratio(_build_scaled_curve(audited), **counts, alpha=inputs.alpha)
    epsilon = _compute_scaled_spending(audited, ratio).compute_lowest_epsilon(audited.delta)[1]
    return Finding(
        epsilon_lower=epsilon,
        refuted=claim.refuted_by(**counts, alpha=inputs.alpha),
        hits_in=hits_in.hits,
        hits_out=hits_out.hits,
        threshold=inputs.event.threshold,
        fraction_of_claim=audited.compute_claim_fraction(epsilon),
        note=f"noise at most {ratio:.4f} of the claimed",
    )


def _find_factor_bound(inputs: MethodInput) -> Finding:
    audited: Any = inputs.target
    noise: Any = inputs.inside.residuals
    noise += inputs.outside.residuals
    high, low = noise.scale_upper(inputs.alpha / 2), noise.scale_lower(inputs.alpha / 2)
    kept = np.concatenate([inputs.inside.residual_vectors, inputs.outside.residual_vectors])
    # Compare at its own size: the factor finds a wrong scale, this test a wrong shape.
    typical = (noise.total / (noise.vectors * noise.dimension)) ** (1 / noise.power)
    own = shape_p(noise.law, kept / typical, 1.0)
    reach = min(inputs.reach or 0.0, 1.0)
    # Canaries that another clip hides show nothing about the sensitivity.
    epsilon = 0.0
    if reach > _NONE:
        spent = _compute_scaled_spending(audited, high / reach)
        epsilon = spent.compute_lowest_epsilon(audited.delta)[1]
    note = f"shape p = {shape_p(noise.law, kept, 1.0):.2g}"
    if own < _SHAPE_ALPHA:
        note += "; the residuals do not have the distribution's shape"
    return Finding(
        epsilon_lower=epsilon,
        # Valid for any part of the sensitivity that the canaries reach: there is less noise than
        # claimed.
        refuted=high < 1.0,
        noise_scale=(low, high),
        fraction_of_claim=reach / high if audited.mu else audited.compute_claim_fraction(epsilon),
        note=note,
    )


def _check_whiteness(inputs: MethodInput) -> Finding:
    pair = inputs.inside.residual_vectors, inputs.outside.residual_vectors
    found = repeated_lag(pair[0]) or repeated_lag(pair[1])
    note = "" if found is None else f"noise repeats at lag {found.lag}: z = {found.z:.3g}"
    return Finding(epsilon_lower=None, refuted=found is not None, note=note)


def _find_one_run_bound(inputs: MethodInput, *, curve: bool) -> Finding:
    audited = inputs.target
    scores = np.concatenate([inputs.inside.scores, inputs.outside.scores])
    right = np.concatenate([inputs.inside.scores > 0, inputs.outside.scores <= 0])
    best = find_surest_guesses(scores, right, _PARTS, alpha=inputs.alpha, delta=audited.delta)
    bound, guesses, hits = best["one-run-fdp" if curve else "one-run"]
    claimed = audited.mu if curve and audited.mu is not None else audited.epsilon
    return Finding(
        hits_in=hits,
        hits_out=guesses - hits,
        epsilon_lower=compute_gaussian_lower(bound, audited.delta) if curve else bound,
        mu_lower=bound if curve else None,
        fraction_of_claim=bound / claimed if claimed else None,
        refuted=bound > claimed,
        note=f"{hits} of {guesses} guesses right; {_format_error_rates(inputs, 0.01, 0.001)}",
    )


def _format_error_rates(inputs: MethodInput, *rates: float) -> str:
    """Format the AUC of scores with and without the canary, and true positives at some rates."""
    inside, ordered = inputs.inside.scores, np.sort(inputs.outside.scores)
    # Ties count half.
    below = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
    parts = [f"AUC {below.mean() / (2 * ordered.size):.3f}"]
    for rate in rates:
        found = (inside > np.quantile(ordered, 1 - rate)).mean()
        parts.append(f"true positives at {100 * rate:g} % false ones {found:.4f}")
    return "; ".join(parts)


def _compute_scaled_spending(target: AuditTarget, ratio: float) -> Composition:
    """Return the charge of all releases if the noise were `ratio` times the claimed."""
    return Composition().add(_scale_charge(target, ratio), count=target.rounds)


def _scale_charge(target: AuditTarget, ratio: float) -> Charge:
    """Return the charge of one release if the noise were `ratio` times the claimed."""
    mechanism: Any = target.charged.mechanism
    # The parameter to which the noise is proportional, or inversely proportional.
    if hasattr(mechanism, "noise_multiplier"):
        less = replace(mechanism, noise_multiplier=mechanism.noise_multiplier * ratio)
    elif hasattr(mechanism, "sigma"):
        less = replace(mechanism, sigma=mechanism.sigma * ratio)
    else:
        less = replace(mechanism, epsilon=mechanism.epsilon / ratio)
    shares = target.charged.shares
    return less.event() if shares is None else shares.build_event(less)


def _build_scaled_curve(target: AuditTarget) -> Callable[[float], ClaimedCurve]:
    """Return the function from noise relative to the claimed to the curve that would be charged."""
    by = target.accountant
    return lambda ratio: _compute_curve(_scale_charge(target, ratio), target.rounds, by)


@lru_cache(maxsize=256)
def _compute_curve(event: Charge, rounds: int, by: str) -> ClaimedCurve:
    """Compute a claimed curve; cached, because every attack on one claim needs the same."""
    return ClaimedCurve.of(Composition().add(event, count=rounds), points=24, by=by)


def _choose_pair_event(pilot: MethodInput, trials: int) -> ScoreEvent:
    limits = {"alpha": pilot.alpha, "delta": pilot.target.delta}
    return find_best_event(pilot.inside.scores, pilot.outside.scores, trials=trials, **limits)


def _choose_middle_event(pilot: MethodInput, trials: int) -> ScoreEvent:
    return ScoreEvent(threshold=compute_middle_threshold(pilot.inside.scores, pilot.outside.scores))


def _choose_profile_event(pilot: MethodInput, trials: int) -> ScoreEvent:
    return find_profile_event(
        _build_scaled_curve(pilot.target),
        pilot.inside.scores,
        pilot.outside.scores,
        # No surer than the pilot: otherwise an event without hits, which shows little, would win.
        trials=min(trials, pilot.inside.scores.size),
        alpha=pilot.alpha,
    )


METHODS: dict[str, AuditMethod] = {
    "pair": AuditMethod(
        "none", lambda audited: not audited.by_halves, _find_pair_bound, _choose_pair_event
    ),
    "mu": AuditMethod(
        "Gaussian curve",
        lambda audited: audited.mu is not None and audited.records is None,
        _find_mu_bound,
        _choose_middle_event,
    ),
    "profile": AuditMethod(
        "none; its number: Gaussian steps",
        lambda audited: audited.by_coins and audited.records is None,
        _find_profile_bound,
        _choose_profile_event,
    ),
    "factor": AuditMethod("shape of the distribution", has_bare_noise, _find_factor_bound),
    "white": AuditMethod("none", has_bare_noise, _check_whiteness),
    "one-run": AuditMethod(
        "none", lambda audited: audited.by_halves, partial(_find_one_run_bound, curve=False)
    ),
    "one-run-fdp": AuditMethod(
        "Gaussian curve",
        lambda audited: audited.by_halves and audited.mu is not None,
        partial(_find_one_run_bound, curve=True),
    ),
}
