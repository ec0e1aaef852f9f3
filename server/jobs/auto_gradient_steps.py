"""Gradient steps by a rule of public facts alone: `algorithm.rounds = "auto"`.

N records lie among m parties, and the sum's noise is r times a trusted server's: √(m/k) of k honest
shares. One release of the whole budget at (ε, δ) is a Gaussian mechanism of parameter μ, so that a
sum of all records' directions, each as long as the clip C, stands over the noise by

    A = N·μ/(2r)             N·μ/r, where a record is there or not: it moves the sum by C, not 2C
    C = G/2                  of a gradient at θ = 0, where a model has no opinion
    τ = A/C                  the way that the budget buys: rate · rounds/(1 − β)
    T = ⌈√(5τL)⌉             5 to 120; L the loss's smoothness
    β = 1 − 5/T              Nesterov's momentum; the last iterate, of targets a mean
    rate = τ(1 − β)/T        at most 1.5/L, where steps diverge
    λ = 1/(10τ)              what is learned on the way τ is hardly pulled back
    R = 8                    ridge's ball: further than what is learned goes

Why: T noisy steps of the rate η move a margin by noise of about τC/A, whatever T is, while the
signal goes the way τ: so noise over signal is 1 at τ = A/C, and T has only to be large enough for
accelerated descent to go that way (Nesterov 2004, Theorem 2.2.2).

Targets (ridge) lie in [−1, 1], most near the schema's centre, which is 0: C = 1/16, times (A/150)^⅜
above 150, for the less noise there is the less is saved by cutting; τ = A/(4C). The loss is a
parabola, so that the mean of the later half is as good a place and has less noise. What cutting
long tails takes from all predictions, T/10 rounds more learn, where A is at least 100.

The constants were found on splits of census, health, wine and survey tables; docs/methods.md has
what they give. A key that the job gives keeps its value.

>>> choose_gradient_steps(signal=1329.0, lipschitz=1.0, curvature=0.25, targets=False).rounds
58
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_MIN_ROUNDS, _MAX_ROUNDS = 5, 120

_MIN_LEVEL_SIGNAL = 100.0
"""A from which on the level is worth its rounds."""


@dataclass(frozen=True, kw_only=True)
class GradientStepChoices:
    """What the rule says: keys of `[algorithm]`, and λ and the radius of the model."""

    rounds: int
    learning_rate: float
    momentum: float
    clip_norm: float
    lambda_: float
    nesterov: bool
    average: bool
    level_rounds: int = 0
    radius: float = 8.0


def choose_gradient_steps(
    *, signal: float, lipschitz: float, curvature: float, targets: bool
) -> GradientStepChoices:
    """The steps for A, G, L, and whether targets are learned, not labels."""
    if not targets:
        clip = lipschitz / 2
        return choose_steps_for_path(signal / clip, curvature=curvature, clip_norm=clip)
    clip = max(1, signal / 150) ** (3 / 8) / 16
    steps = choose_steps_for_path(signal / clip / 4, curvature=curvature, clip_norm=clip)
    level = math.ceil(steps.rounds / 10) if signal >= _MIN_LEVEL_SIGNAL else 0
    return replace(steps, average=True, rounds=steps.rounds + level, level_rounds=level)


def choose_steps_for_path(
    path_length: float, *, curvature: float, clip_norm: float
) -> GradientStepChoices:
    """The steps that go a way τ, with the rule's other numbers."""
    rounds = min(max(math.ceil(math.sqrt(5 * path_length * curvature)), _MIN_ROUNDS), _MAX_ROUNDS)
    momentum = 1 - 5 / rounds
    return GradientStepChoices(
        rounds=rounds,
        learning_rate=min(1.5 / curvature, path_length * (1 - momentum) / rounds),
        momentum=momentum,
        clip_norm=clip_norm,
        lambda_=0.1 / path_length,
        nesterov=momentum > 0,
        average=False,
    )
