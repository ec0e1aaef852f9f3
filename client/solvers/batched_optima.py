"""Newton's method for many regularised problems of one size at once, each with a certificate.

`parley.client.solvers.local_optima` solves every party's problem by it, and
`parley.client.solvers.pooled_optimum` that of all records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Array
from parley.client.solvers.newton import NewtonSystem, PrimalSystem, solve_by_newton

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows


MAX_STEPS = 3000
"""Maximum number of Newton steps."""

MAX_MATRIX_SIZE = 1000
"""Size of Hessian and Gram matrix beyond which conjugate gradients are faster."""

TOLERANCE_MARGIN = 0.25
"""Fraction of the tolerance at which the loop stops, so that the certificate holds."""


def solve_problems(
    system: PrimalSystem, tolerance: NDArray[np.float64]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Solve c problems `[c, n, p]`: return theta `[c, d]`, certificates `[c]`, steps `[c]`."""
    model = system.model
    large = _needs_conjugate_gradients(system)
    if not large and _is_dual_faster(system):
        theta, norm, steps = _solve_dual_problems(system, tolerance)
    else:
        method = _build_conjugate_gradients(system) if large else system
        start = np.zeros((len(system.rows), model.dimension))
        theta, steps = solve_by_newton(method, start, TOLERANCE_MARGIN * tolerance, MAX_STEPS)
        norm = compute_gradient_norms(system, theta)
    radius = model.loss.theta_radius
    outside = np.flatnonzero(np.vecdot(theta, theta) > radius**2)
    if outside.size:
        from parley.client.solvers.constrained_ridge import solve_constrained_ridge  # noqa: PLC0415 - only for optima outside their ball

        own = system.take(outside)
        theta[outside] = solve_constrained_ridge(own, radius)
        norm[outside] = compute_gradient_norms(own, theta[outside])
    return theta, norm, steps


def compute_gradient_norms(system: NewtonSystem, theta: Array) -> Array:
    """Return ‖∇J(θ)‖₂ from the records; on the sphere ‖θ‖₂ = R the distance to its normal cone."""
    gradient, norm = system.compute_gradient(system.compute_margins(theta), theta)
    radius = system.model.loss.theta_radius
    if np.isinf(radius):
        return norm
    square = np.vecdot(theta, theta)
    on_sphere = square >= (radius * (1 - 1e-14)) ** 2
    push = np.maximum(-np.vecdot(gradient, theta) / np.maximum(square, 1e-300), 0)
    outward = gradient + np.where(on_sphere, push, 0)[:, None] * theta
    return np.asarray(np.sqrt(np.vecdot(outward, outward)))


def convert_labels(model: LinearModel, labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels in the type that the model's loss computes with."""
    return labels.astype(np.int64 if model.loss.outputs > 1 else np.float64, copy=False)


def _needs_conjugate_gradients(system: PrimalSystem) -> bool:
    """Return whether a Hessian and a Gram matrix are slower, as measured, or not possible."""
    outputs, smaller = system.model.loss.outputs, min(system.rows.shape[1], system.model.dimension)
    return bool(outputs > 1 or smaller > MAX_MATRIX_SIZE)


def _is_dual_faster(system: PrimalSystem) -> bool:
    """Return whether n records and d parameters are solved faster by a Gram matrix, as measured."""
    if system.tilt is not None:  # the unknown of a dual system spans only the rows
        return False
    return bool(4 * system.rows.shape[1] <= 5 * system.model.dimension)


def _build_conjugate_gradients(system: PrimalSystem) -> PrimalSystem:
    from parley.client.solvers.conjugate_gradients import ConjugateGradients  # noqa: PLC0415 - spares its code for small problems

    return ConjugateGradients(**vars(system))


def _solve_dual_problems(
    system: PrimalSystem, tolerance: NDArray[np.float64]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return what `solve_problems` returns, from the problems' Gram matrices."""
    from parley.client.solvers.dual_system import DualSystem  # noqa: PLC0415 - spares its code for many records

    rows, aim = system.rows, TOLERANCE_MARGIN * tolerance
    gram = np.matmul(rows, rows.swapaxes(-1, -2))
    dual = DualSystem(**{**vars(system), "rows": gram})
    unknown, steps = solve_by_newton(dual, np.zeros(rows.shape[:2]), aim, MAX_STEPS)
    theta = system.model.sum_gradients(unknown, rows)
    norm = compute_gradient_norms(system, theta)
    # A Gram matrix squares the condition of its rows. A few more steps repair the loss of accuracy.
    if (weak := np.flatnonzero(~(norm <= tolerance))).size:
        own = _build_conjugate_gradients(system.take(weak))
        mended, more = solve_by_newton(own, theta[weak], aim[weak], MAX_STEPS)
        theta[weak], norm[weak] = mended, compute_gradient_norms(own, mended)
        steps[weak] += more
    return theta, norm, steps


def check_problem(
    model: LinearModel, features: FeatureRows, lambda_: float, gradient_tolerance: float
) -> None:
    """Raise ValueError unless the problem has a unique optimum and rows of the model's width."""
    if not 0 < lambda_ < np.inf:
        raise ValueError(f"Expected lambda > 0, got {lambda_}.")
    if not 0 < gradient_tolerance < np.inf:
        raise ValueError(f"Expected gradient_tolerance > 0, got {gradient_tolerance}.")
    if features.ndim != 2 or features.shape[1] != model.features:
        raise ValueError(f"Expected rows of {model.features} features, got {features.shape}.")
