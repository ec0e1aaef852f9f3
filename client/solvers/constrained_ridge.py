"""Ridge regression in a ball ‖θ‖₂ ≤ R, if the free minimiser lies outside."""

from __future__ import annotations

import numpy as np

from parley.client.models.loss_base import Array
from parley.client.solvers.newton import NewtonSystem

_MAX_BALL_STEPS = 100


def solve_constrained_ridge(system: NewtonSystem, radius: float) -> Array:
    """Return `[c, p]` minimisers on the sphere of radius R, up to rounding and never outside it.

    The free minimisers of the system's c problems are outside the ball.
    """
    root, lambda_ = np.sqrt(system.weights), system.lambda_
    x, y = root[..., None] * system.rows, root * system.labels
    if x.shape[1] < x.shape[2]:
        values, vectors = np.linalg.eigh(np.matmul(x, x.swapaxes(-1, -2)))
        target = _apply(vectors.swapaxes(-1, -2), y)
        shift = _find_shift(values, np.maximum(values, 0) * target**2, lambda_, radius)
        theta = _apply(x.swapaxes(-1, -2), _apply(vectors, target / (values + shift[:, None])))
    else:
        values, vectors = np.linalg.eigh(np.matmul(x.swapaxes(-1, -2), x))
        target = _apply(vectors.swapaxes(-1, -2), _apply(x.swapaxes(-1, -2), y))
        shift = _find_shift(values, target**2, lambda_, radius)
        theta = _apply(vectors, target / (values + shift[:, None]))
    norm = np.sqrt(np.vecdot(theta, theta))[:, None]
    return np.asarray(theta * np.minimum(1, radius / norm * (1 - 2.0**-52)))


def _apply(matrices: Array, vectors: Array) -> Array:
    return np.asarray(np.matmul(matrices, vectors[..., None])[..., 0])


def _find_shift(values: Array, squares: Array, lambda_: float, radius: float) -> Array:
    """Return the s `[c]` with Σ q/(e + s)² = R² for eigenvalues e and q = squares, `[c, k]`."""
    shift = np.full(len(values), lambda_)
    for _ in range(_MAX_BALL_STEPS):
        ratio = squares / (values + shift[:, None]) ** 2
        square = ratio.sum(axis=1)
        fall = (ratio / (values + shift[:, None])).sum(axis=1)  # −½ d‖θ‖²/ds
        move = np.maximum(square / fall * (np.sqrt(square) / radius - 1), 0)
        shift += move
        if not (move > 1e-15 * shift).any():
            break
    return shift
