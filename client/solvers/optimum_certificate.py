"""Proved bound on ‖∇J(θ)‖: the certificate of a local optimum, rounded outward.

J(θ) = (1/n) Σ ℓ(θ·x_i, y_i) + (λ/2)‖θ‖² + aᵀθ is λ-strongly convex, so ‖∇J(θ̂)‖ ≤ τ puts θ̂ within
τ/λ of its optimum. The bound is computed from numbers that are exact in any order of addition, and
from a few roundings that are bounded one by one:

| | how | off by at most |
|---|---|---|
| rows x | whole numbers of 2^-16, ‖x‖ ≤ 1 (`round_to_grid`) | 0 |
| θ̂ | three 26-bit whole numbers per entry (`split_into_integers`): what is released | 0 |
| m = θ̂·x | three exact products, and their sum | μ = 2^-51·Σ\\|part\\| |
| s = ℓ′(m) | `Loss.compute_slopes`: G-Lipschitz, smooth | L_s·μ + 2^-43·G(1 + K/2^9) + 2^-46·L_s |
| s | cut to three whole numbers of 20 bits | √K·2^-59 of the largest |
| Σ s xᵀ | three exact sums | 0 |
| /n, + λθ̂ + a, ‖·‖ | a few operations per entry | 2^-48 of the terms' lengths |

A slope of `Loss.compute_slopes` is a few correctly rounded operations and one exp with a relative
error of 2^-46. For losses with exp (K of them added up) this is the G term of the table. For losses
that subtract a corner from a margin, or look it up in a table, it is the L_s term.
`tests/client/solvers/test_optima_certified.py` compares it with exact arithmetic. Values that are
not finite have the bound ∞.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Array
from parley.privacy.sensitivity.exact_row_arithmetic import compute_squares

_ROW: Final = 2.0**16
_PIECES: Final = 3
_THETA_BITS, _SLOPE_BITS = 26, 20
_SMALLEST: Final = -200
"""Minimum exponent: values whose entries are all below 2^-200 are cut like those of 2^-200."""

_EXACT_ROWS: Final = 1 << 16
"""Maximum products below 2^36 per sum, so that it stays below 2^53."""

_MAX_ROWS: Final = 1 << 26
_MAX_FEATURES: Final = 1 << 22
"""Maximum p: √p·2^26·2^16 < 2^53 bounds each part of a margin."""


def round_to_grid(rows: Array) -> Array:
    """Cut rows `[…, n, p]` towards zero to multiples of 2^-16; rows longer than 1 become zeros."""
    whole = np.trunc(np.multiply(rows, _ROW, dtype=np.float64))
    inside = compute_squares(whole.reshape(-1, whole.shape[-1])) <= _ROW**2
    whole[~inside.reshape(whole.shape[:-1])] = 0
    whole /= _ROW
    return whole


def split_into_integers(values: Array, bits: int) -> tuple[list[Array], Array]:
    """Return whole numbers T_k `[c, …]` of `bits` bits, and units u_k `[c]`: values ≈ Σ T_k·u_k.

    Each problem's numbers are cut relative to its largest entry. The remainder is below the last
    unit.
    """
    largest = np.abs(values).reshape(len(values), -1).max(axis=1, initial=0)
    exponent = np.maximum(np.frexp(largest)[1], _SMALLEST)
    shape = (-1,) + (1,) * (values.ndim - 1)
    left = np.ldexp(values, (bits - exponent).reshape(shape))
    parts = []
    for _ in range(_PIECES):
        part = np.trunc(left)
        parts.append(part)
        left = np.ldexp(left - part, bits)  # exact: fewer bits than before
    units = np.ldexp(1.0, exponent[None] - bits * np.arange(1, _PIECES + 1)[:, None])
    return parts, np.asarray(units)


def combine_integers(pieces: list[Array], units: Array) -> Array:
    """Return Σ T_k·u_k, added from the largest to the smallest."""
    shape = (-1,) + (1,) * (pieces[0].ndim - 1)
    total: Array = pieces[0] * units[0].reshape(shape)
    for part, unit in zip(pieces[1:], units[1:], strict=True):
        total = total + part * unit.reshape(shape)
    return total


def bound_gradient_norms(
    model: LinearModel,
    rows: Array,
    labels: NDArray[Any],
    real: NDArray[np.bool_],
    theta: Array,
    *,
    lambda_: float,
    tilt: Array | None = None,
) -> tuple[Array, Array]:
    """Return θ̂ `[c, d]` as it may be released, and an upper bound on each ‖∇J(θ̂)‖.

    Args:
        rows: `[c, n, p]` of `round_to_grid`.
        labels: `[c, n]`.
        real: `[c, n]` flags of records, at least one; the other rows are zeros.
        theta: `[c, d]`.
        tilt: `[c, d]` a.
    """
    loss, count = model.loss, real.sum(axis=1)
    if rows.shape[1] > _MAX_ROWS or rows.shape[2] > _MAX_FEATURES:
        expected = f"Expected at most {_MAX_ROWS} records of {_MAX_FEATURES} features"
        raise ValueError(f"{expected}, got {rows.shape[1:]}.")
    whole = rows * _ROW
    thetas, units = split_into_integers(theta, _THETA_BITS)
    theta = combine_integers(thetas, units)
    products = [model.compute_margins(part, whole) for part in thetas]
    margins = combine_integers(products, units / _ROW)
    rounded = combine_integers([np.abs(part) for part in products], units / _ROW) * 2.0**-51
    slopes = loss.compute_slopes(margins, labels)
    exact_at = real if loss.outputs == 1 else real[..., None]
    slopes = np.where(exact_at, slopes, 0.0)
    parts, steps = split_into_integers(slopes, _SLOPE_BITS)
    sums = [_sum_gradients(model, part, whole) for part in parts]
    means = [s * (u / _ROW / count)[:, None] for s, u in zip(sums, steps, strict=True)]
    pull = lambda_ * theta
    gradient = means[0] + means[1] + means[2] + pull
    sizes = sum(map(_compute_norms, means)) + _compute_norms(pull)
    if tilt is not None:
        gradient = gradient + tilt
        sizes = sizes + _compute_norms(tilt)
    off = rounded if loss.outputs == 1 else _compute_norms(rounded)
    off = np.where(real, off, 0.0).max(axis=1) * loss.smoothness  # a mean is at most the largest
    off = off + loss.lipschitz * 2.0**-43 * (1 + loss.outputs / 2**9) + loss.smoothness * 2.0**-46
    largest = np.abs(slopes).reshape(len(slopes), -1).max(axis=1)
    off = off + largest * (math.sqrt(loss.outputs) * 2.0**-58)
    bound = (_compute_norms(gradient) + sizes * 2.0**-48 + off) * (1 + 2.0**-40) + 1e-100
    return theta, np.where(np.isfinite(bound), bound, np.inf)


def _compute_norms(vectors: Array) -> Array:
    """Return `[…]` L2 norms of `[…, d]`, too small by at most what the callers' 2^-40 allows."""
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)) * (1 + vectors.shape[-1] * 2.0**-52))


def _sum_gradients(model: LinearModel, slopes: Array, integer_rows: Array) -> Array:
    """Return `[c, d]` Σ_i s_i x_iᵀ of whole numbers, summed exactly, as the nearest float64."""
    total = np.zeros((len(integer_rows), model.dimension), np.int64)
    for begin in range(0, integer_rows.shape[1], _EXACT_ROWS):
        own = slice(begin, begin + _EXACT_ROWS)
        total += model.sum_gradients(slopes[:, own], integer_rows[:, own]).astype(np.int64)
    return total.astype(np.float64)
