"""Ridge regression in a ball ‖θ‖₂ ≤ R, if the free minimiser lies outside."""

from __future__ import annotations

import numpy as np

from parley.client.models.loss_base import Array

_MAX_BALL_STEPS = 100


def solve_constrained_ridge(
    rows: Array, labels: Array, weights: Array, lambda_: float, *, radius: float
) -> Array:
    """Return minimisers on the sphere, for problems with a free minimiser outside the ball.

    Args:
        rows: `[c, n, p]`, finite.
        labels: `[c, n]`.
        weights: `[c, n]` record weights w, 0 for padding.

    Returns:
        `[c, p]` of norm R, up to rounding and never above it.
    """
    root = np.sqrt(weights)
    x, y = root[..., None] * rows, root * labels
    if rows.shape[1] < rows.shape[2]:
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
