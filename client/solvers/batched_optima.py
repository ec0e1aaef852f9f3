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
from parley.client.solvers.newton import (
    ConjugateGradients,
    DualSystem,
    NewtonSystem,
    PrimalSystem,
    solve_by_newton,
)

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows


MAX_STEPS = 3000
"""Maximum number of Newton steps."""

MAX_MATRIX_SIZE = 1000
"""Size of Hessian and Gram matrix beyond which conjugate gradients are faster."""

TOLERANCE_MARGIN = 0.25
"""Fraction of the tolerance at which the loop stops, so that the certificate holds."""


def solve_problems(
    system: ConjugateGradients, tolerance: NDArray[np.float64]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Solve c problems `[c, n, p]`: return theta `[c, d]`, certificates `[c]`, steps `[c]`."""
    model, rows = system.model, system.rows
    method = _choose_method(model, rows.shape[1])
    if system.tilt is not None and method is DualSystem:  # its unknown spans only the rows
        method = PrimalSystem
    aim = TOLERANCE_MARGIN * tolerance
    if method is DualSystem:
        gram = np.matmul(rows, rows.swapaxes(-1, -2))
        dual = DualSystem(**{**vars(system), "rows": gram})
        unknown, steps = solve_by_newton(dual, np.zeros(rows.shape[:2]), aim, MAX_STEPS)
        theta = model.sum_gradients(unknown, rows)
    else:
        start = np.zeros((len(rows), model.dimension))
        theta, steps = solve_by_newton(method(**vars(system)), start, aim, MAX_STEPS)
    norm = compute_gradient_norms(system, theta)
    # A Gram matrix squares the condition of its rows. A few more steps repair the loss of accuracy.
    if method is DualSystem and (weak := np.flatnonzero(~(norm <= tolerance))).size:
        mended, more = solve_by_newton(system.take(weak), theta[weak], aim[weak], MAX_STEPS)
        theta[weak], norm[weak] = mended, compute_gradient_norms(system.take(weak), mended)
        steps[weak] += more
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


def _choose_method(model: LinearModel, records: int) -> type[PrimalSystem] | type[DualSystem]:
    """Return the fastest way to a Newton direction for n records and d parameters, as measured."""
    dimension = model.dimension
    if model.loss.outputs > 1 or min(records, dimension) > MAX_MATRIX_SIZE:
        return ConjugateGradients
    return DualSystem if 4 * records <= 5 * dimension else PrimalSystem


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
