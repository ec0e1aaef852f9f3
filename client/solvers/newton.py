"""Damped Newton for many small convex problems at once; each stops separately.

Problem b of a batch is J(θ) = Σ_i w_i·ℓ(θ·x_i, y_i) + (λ/2)‖θ‖₂² (+ aᵀθ). Its Newton direction is
computed in one of three ways:

- `PrimalSystem`: the `[d, d]` Hessian, for d up to about n;
- `dual_system.DualSystem`: θ = Xᵀa, so the unknown has n entries and only the `[n, n]` Gram matrix
  is needed;
- `conjugate_gradients.ConjugateGradients`: Hessian-vector products, if both are large, and for
  several outputs.

The step length is found by a line search on the slope φ′(t) along the direction, which increases
for a convex φ. Objective values are not compared, because near the optimum they differ only by
rounding. With it the loop also converges if the Hessian is only piecewise constant (Huber SVM:
Keerthi & DeCoste 2005). Problems never mix: a result does not depend on the others, to the last
bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Array

_SLOPE_TOLERANCE = 0.1  # φ′ at the final step, as a fraction of φ′(0)
_ROWS = 4096  # rows of a Hessian added up at a time
_STALLED = 400  # steps without a smaller gradient after which a problem ends


@dataclass(frozen=True, kw_only=True, repr=False)
class NewtonSystem(ABC):
    """c problems of one shape, and the computation of their Newton directions.

    Attributes:
        rows: `[c, n, p]` float64 (`DualSystem`: the Gram matrices `[c, n, n]`).
        labels: `[c, n]`.
        weights: `[c, n]` record weights w, 0 for padding; they sum to 1.
        tilt: `[c, d]` a, with aᵀθ added to each objective (not `DualSystem`); None: no tilt.
    """

    model: LinearModel
    rows: Array
    labels: NDArray[Any]
    weights: Array
    lambda_: float
    tilt: Array | None = None

    def take(self, chosen: NDArray[np.intp]) -> Self:
        """Return the system of the chosen problems."""
        return replace(
            self,
            rows=self.rows[chosen],
            labels=self.labels[chosen],
            weights=self.weights[chosen],
            tilt=None if self.tilt is None else self.tilt[chosen],
        )

    def weigh(self, slopes: Array) -> Array:
        """Multiply slopes (or curvatures) `[c, n]` or `[c, n, K]` by the record weights."""
        return slopes * (self.weights if slopes.ndim == 2 else self.weights[..., None])

    def compute_slopes(self, margins: Array) -> Array:
        """Return weighted slopes of the loss, in the shape of the margins."""
        return self.weigh(self.model.loss.compute_slopes(margins, self.labels))

    def compute_curvatures(self, margins: Array) -> Array:
        """Return weighted curvatures `[c, n]` (one output)."""
        return self.weigh(self.model.loss.compute_curvatures(margins, self.labels))

    @abstractmethod
    def compute_margins(self, unknown: Array) -> Array:
        """Return margins `[c, n]` or `[c, n, K]` of the unknown (linear in it)."""

    @abstractmethod
    def compute_gradient(self, margins: Array, unknown: Array) -> tuple[Array, Array]:
        """Return the gradient in the unknown's coordinates and its L2 norm `[c]` in those of θ."""

    @abstractmethod
    def compute_direction(self, margins: Array, gradient: Array, norm: Array) -> Array:
        """Return the Newton direction in the unknown's coordinates."""

    @abstractmethod
    def compute_inner_product(self, unknown: Array, step: Array, step_margins: Array) -> Array:
        """Return `[c]` inner products, in θ's coordinates, of an unknown with a step."""


@dataclass(frozen=True, kw_only=True)
class PrimalSystem(NewtonSystem):
    """Unknown θ `[c, d]`; solves with (Xᵀ D X + λI), one output."""

    def compute_margins(self, unknown: Array) -> Array:
        """Return X θ."""
        return self.model.compute_margins(unknown, self.rows)

    def compute_gradient(self, margins: Array, unknown: Array) -> tuple[Array, Array]:
        """Return Xᵀ r + λθ, and its norm."""
        gradient = self.model.sum_gradients(self.compute_slopes(margins), self.rows)
        gradient += self.lambda_ * unknown
        if self.tilt is not None:
            gradient += self.tilt
        return gradient, np.sqrt(np.vecdot(gradient, gradient))

    def compute_direction(self, margins: Array, gradient: Array, norm: Array) -> Array:
        """Return −(Xᵀ D X + λI)⁻¹ g."""
        curvature = self.compute_curvatures(margins)
        hessian = np.zeros((len(gradient), gradient.shape[1], gradient.shape[1]))
        for begin in range(0, self.rows.shape[1], _ROWS):
            x = self.rows[:, begin : begin + _ROWS]
            weighted = x * curvature[:, begin : begin + _ROWS, None]
            hessian += np.matmul(weighted.swapaxes(-1, -2), x)
        return solve_shifted(hessian, self.lambda_, -gradient)

    def compute_inner_product(self, unknown: Array, step: Array, step_margins: Array) -> Array:
        """Return θ·s."""
        return np.asarray(np.vecdot(unknown, step))


def solve_by_newton(
    system: NewtonSystem, start: Array, gradient_tolerance: NDArray[np.float64], max_steps: int
) -> tuple[Array, NDArray[np.int64]]:
    """Make Newton steps until ‖∇J‖₂ ≤ gradient_tolerance, for each problem separately.

    Args:
        start: `[c, …]` unknowns to start from.
        gradient_tolerance: `[c]` on the gradient's norm in θ's coordinates.

    Returns:
        The unknown `[c, …]` with the smallest gradient seen, and the number of steps `[c]`. A
        problem that overflows or stalls ends early; no error is raised.
    """
    best, best_norm = start.copy(), np.full(len(start), np.inf)
    steps, since = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
    active, unknown = np.arange(len(start)), start.copy()
    while len(active):
        margins = system.compute_margins(unknown)
        gradient, norm = system.compute_gradient(margins, unknown)
        better = norm < best_norm[active]
        best[active[better]], best_norm[active[better]] = unknown[better], norm[better]
        since[active] = np.where(better, 0, since[active] + 1)
        # NaN compares as False: a problem that overflowed ends here.
        going = norm > gradient_tolerance[active]
        going &= (steps[active] < max_steps) & (since[active] < _STALLED)
        if not going.all():
            left = np.flatnonzero(going)
            system, active = system.take(left), active[left]
            if not len(active):
                break
            unknown, margins = unknown[left], margins[left]
            gradient, norm = gradient[left], norm[left]
        step = system.compute_direction(margins, gradient, norm)
        unknown += _search_step_length(system, unknown, margins, step)[:, None] * step
        steps[active] += 1
    return best, steps


def _search_step_length(system: NewtonSystem, unknown: Array, margins: Array, step: Array) -> Array:
    """Return step lengths `[c]` with |φ′(t)| ≤ `_SLOPE_TOLERANCE`·|φ′(0)|.

    The search uses bracketing and the Illinois rule.
    """
    change = system.compute_margins(step)
    bend = system.lambda_ * system.compute_inner_product(step, step, change)
    pull = system.lambda_ * system.compute_inner_product(unknown, step, change)
    if system.tilt is not None:
        pull = pull + np.vecdot(system.tilt, step)

    def tilt(length: Array) -> Array:
        if margins.ndim == 3:
            slopes = system.compute_slopes(margins + length[:, None, None] * change)
            along = np.vecdot(slopes, change).sum(axis=-1)
        else:
            along = np.vecdot(system.compute_slopes(margins + length[:, None] * change), change)
        return np.asarray(along + pull + length * bend)

    low, high = np.zeros(len(step)), np.full(len(step), np.inf)
    at_low = tilt(low)
    goal = np.abs(at_low) * _SLOPE_TOLERANCE
    at_high, length = np.zeros(len(step)), np.ones(len(step))
    for trial in range(60):
        now = tilt(length)
        done = ~(np.abs(now) > goal)
        if done.all():
            return length
        falls = now < 0
        moves_low, moves_high = ~done & falls, ~done & ~falls
        low, at_low = np.where(moves_low, length, low), np.where(moves_low, now, at_low)
        high, at_high = np.where(moves_high, length, high), np.where(moves_high, now, at_high)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            secant = low + (high - low) * at_low / (at_low - at_high)
            middle = (low + high) / 2
            inside = (secant > low) & (secant < high) & (trial % 2 == 0)
            following = np.where(np.isinf(high), 4 * length, np.where(inside, secant, middle))
        length = np.where(done, length, following)
    # Only rounding decides here. At the lower end the objective has certainly not risen.
    return np.where(~(np.abs(tilt(length)) > goal), length, low)


def solve_shifted(matrix: Array, lambda_: float, right: Array) -> Array:
    """Return (matrix + λI)⁻¹ right for each problem; NaN if LAPACK finds a singular one."""
    size = matrix.shape[-1]
    matrix.reshape(len(matrix), -1)[:, :: size + 1] += lambda_
    try:
        return np.asarray(np.linalg.solve(matrix, right[..., None])[..., 0])
    except np.linalg.LinAlgError:
        solution = np.full_like(right, np.nan)
        for index, (one, side) in enumerate(zip(matrix, right, strict=True)):
            try:
                solution[index] = np.linalg.solve(one, side)
            except np.linalg.LinAlgError:
                continue  # stays NaN: the party gets no certificate
        return solution
