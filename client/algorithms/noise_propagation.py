"""Bound how far noise in each round moves the result of gradient steps, from public facts.

To first order a deviation δ of θ follows δ ← δ − η·s. Here s is the step along (H + λ)δ + ξ_t, ξ_t
is the round's noise, and H is the Hessian of the data loss, which depends on the records and is
unknown. H is symmetric, and 0 ≤ H ≤ L·I for a convex loss of smoothness L on rows ‖x‖ ≤ 1. Clipping
a gradient of one margin leaves a convex loss that is no more curved. If H stays the same, its
eigenvectors u split the steps into one recursion per eigenvalue h, linear in the noise. For ξ_t of
standard deviation 1 in each coordinate

    sd(⟨u, δ_T⟩) ≤ gain = max over h in [0, L/2] of √(Σ_t r_t(h)²)

for each direction u of length 1 except those of larger h, with r_t(h) the response to the noise of
round t. With one margin the trace of H is at most L, so there is at most one such direction, which
most records share (with K margins at most three: 1 − 1/K over ¼). In most jobs the gain is the
response of directions that no record has, h = 0: in the records' directions the loss pulls back.

    >>> round(compute_noise_gain(rounds=4, learning_rate=0.5, momentum=0, nesterov=False,
    ...     average=False,
    ...     lambda_=0, smoothness=1, done=4), 3)
    1.0
"""

from __future__ import annotations

import numpy as np

_POINTS = 20
"""Values of h per round: r_t is a polynomial of degree t in h."""


def compute_noise_gain(
    *,
    rounds: int,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    average: bool,
    lambda_: float,
    smoothness: float,
    done: int,
) -> float:
    """Return the gain after `done` of T = `rounds` steps of `GradientPerturbation`, without its
    ball.

    Args:
        average: whether the mean of the later half of the iterates is reported, if there is one.
    """
    curvature = np.linspace(0, smoothness / 2, _POINTS * rounds + 1) + lambda_
    delta, velocity = np.zeros_like(curvature), np.zeros_like(curvature)
    sums = np.zeros((done + 1, len(curvature)))  # Σ of the responses 1 … k rounds after the noise
    for k in range(1, done + 1):
        gradient = curvature * delta + (k == 1)
        velocity = momentum * velocity + gradient
        delta = delta - learning_rate * (gradient + momentum * velocity if nesterov else velocity)
        sums[k] = sums[k - 1] + delta
    first = rounds // 2 if average and done > rounds // 2 else done - 1
    noisy = np.arange(1, done + 1)  # the round of each noise
    reported = sums[done + 1 - noisy] - sums[np.maximum(first + 1 - noisy, 0)]
    return float(np.sqrt((reported**2).sum(axis=0).max()) / (done - first))
