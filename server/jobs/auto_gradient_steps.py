"""Choose gradient steps from public facts: `algorithm.rounds = "auto"`.

m parties hold N records. The sum's noise is r times a trusted server's: √(m/k) with k honest
shares. One release of the whole budget (ε, δ) is a Gaussian mechanism with parameter μ. The sum of
all records' directions, each of length C (the clip norm), then has the signal-to-noise ratio

    A = N·μ/(2r)             N·μ/r if records are added or removed: one moves the sum by C, not 2C
    C = G/2                  gradient norm at θ = 0, where a model predicts nothing
    τ = A/C                  path length that the budget pays for: rate · rounds/(1 − β)
    T = ⌈√(5τL)⌉             5 to 120; L is the loss's smoothness
    β = 1 − 5/T              Nesterov's momentum; the last iterate, for targets a mean
    rate = τ(1 − β)/T        at most 1.5/L, above which steps diverge
    λ = 1/(10τ)              hardly pulls back what a path of length τ learns
    R = 8                    ridge's ball, larger than any θ that is learned

Reason: T noisy steps with rate η add noise of about τC/A to a margin, for any T, while the signal
moves by τ. Noise equals signal at τ = A/C. T only has to be large enough for accelerated descent to
go that far (Nesterov 2004, Theorem 2.2.2).

Targets (ridge) are in [−1, 1], most of them near the schema's centre, which is 0: C = 1/16, times
(A/150)^⅜ above 150, because clipping saves less if there is less noise; τ = A/(4C). The loss is a
parabola, so the mean of the later half is as close to the optimum and has less noise. Clipping long
tails shifts all predictions. If A is at least 100, T/10 more rounds learn that shift.

The constants were found on splits of census, health, wine and survey tables; docs/features.md has
the results. A key that the job sets keeps its value.

>>> choose_gradient_steps(signal=1329.0, lipschitz=1.0, curvature=0.25, targets=False).rounds
58
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_MIN_ROUNDS, _MAX_ROUNDS = 5, 120

_MIN_LEVEL_SIGNAL = 100.0
"""Smallest A for which learning the level is worth its rounds."""


@dataclass(frozen=True, kw_only=True)
class GradientStepChoices:
    """Choices of the rule: keys of `[algorithm]`, and λ and the radius of the model."""

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
    """Return the steps for A, G and L, for targets or for labels."""
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
    """Return the steps for a path of length τ, with the rule's other numbers."""
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
