"""The optimum over all records together: the non-private baseline of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Array
from parley.client.solvers.batched_optima import (
    MAX_MATRIX_SIZE,
    MAX_STEPS,
    TOLERANCE_MARGIN,
    check_problem,
    compute_gradient_norms,
    convert_labels,
    solve_problems,
)
from parley.client.solvers.newton import PrimalSystem, solve_by_newton

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows


_MIN_PIECEWISE_ENTRIES = 1 << 24  # of a pooled problem that is not copied to float64


@dataclass(frozen=True, kw_only=True)
class PooledOptimum:
    """The pooled optimum: theta `[d]`, its certificate and its objective value."""

    theta: NDArray[np.float64]
    gradient_norm: float
    certified: bool
    iterations: int
    loss: float


def solve_pooled_optimum(
    model: LinearModel,
    features: FeatureRows,
    labels: NDArray[Any],
    lambda_: float,
    *,
    gradient_tolerance: float = 1e-10,
    weights: Array | None = None,
) -> PooledOptimum:
    """Compute the optimum over all records together: the non-private baseline of a simulation.

    Args:
        features: `[N, p]` prepared rows.
        labels: `[N]`.
        weights: `[N]` ≥ 0, summing to 1; default 1/N each.
    """
    check_problem(model, features, lambda_, gradient_tolerance)
    if weights is None:
        weights = np.full(len(features), 1 / len(features))
    if weights.shape != (len(features),):
        raise ValueError(f"Expected {len(features)} weights, got shape {weights.shape}.")
    with np.errstate(all="ignore"):
        labels = convert_labels(model, labels)
        problem: Any = {"model": model, "labels": labels[None], "weights": weights[None]}
        problem["lambda_"] = lambda_
        tolerance = np.array([gradient_tolerance])
        solution = _solve_in_pieces(features, problem, tolerance)
        if solution is None:
            rows = np.ascontiguousarray(features, np.float64)[None]
            theta, norm, steps = solve_problems(PrimalSystem(rows=rows, **problem), tolerance)
            solution = theta, norm, steps, model.compute_margins(theta[0], rows[0])
    theta, norm, steps, margins = solution
    loss = float(np.vdot(weights, model.loss.compute_values(margins, labels)))
    return PooledOptimum(
        theta=theta[0],
        gradient_norm=float(norm[0]),
        certified=bool(norm[0] <= gradient_tolerance),
        iterations=int(steps[0]),
        loss=loss + lambda_ / 2 * float(np.vdot(theta[0], theta[0])),
    )


def _solve_in_pieces(
    features: FeatureRows, problem: Mapping[str, Any], tolerance: NDArray[np.float64]
) -> tuple[Array, Array, NDArray[np.int64], Array] | None:
    """Solve one problem of many records: return theta `[1, d]`, norm, steps and margins `[n]`.

    It is None if the records are few, and for problems that need all rows at once.
    """
    model: LinearModel = problem["model"]
    fits = model.loss.outputs == 1 and model.dimension <= MAX_MATRIX_SIZE
    if features.size < _MIN_PIECEWISE_ENTRIES or not fits:
        return None
    from parley.client.solvers.chunked_newton import PooledSystem  # noqa: PLC0415 - few jobs have so many records

    system = PooledSystem(rows=np.empty((1, 0, model.features)), pooled=features, **problem)
    aim = TOLERANCE_MARGIN * tolerance
    theta, steps = solve_by_newton(system, np.zeros((1, model.dimension)), aim, MAX_STEPS)
    if not np.vdot(theta, theta) <= model.loss.theta_radius**2:
        return None
    return theta, compute_gradient_norms(system, theta), steps, system.compute_margins(theta)[0]
