"""`DualSystem`: Newton directions from the Gram matrix, for fewer records than parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parley.client.models.loss_base import Array
from parley.client.solvers.newton import NewtonSystem, solve_shifted


@dataclass(frozen=True, kw_only=True)
class DualSystem(NewtonSystem):
    """Unknown a `[c, n]` with θ = Xᵀa; `rows` stores the Gram matrices K = X Xᵀ; one output."""

    def compute_margins(self, unknown: Array) -> Array:
        """Return K a."""
        return np.asarray(np.matmul(self.rows, unknown[..., None])[..., 0])

    def compute_gradient(self, margins: Array, unknown: Array) -> tuple[Array, Array]:
        """Return v = r + λa and the norm: the gradient in θ is Xᵀv, its squared norm vᵀ K v."""
        gradient = self.compute_slopes(margins) + self.lambda_ * unknown
        square = np.vecdot(gradient, self.compute_margins(gradient))
        return gradient, np.sqrt(np.maximum(square, 0))

    def compute_direction(self, margins: Array, gradient: Array, norm: Array) -> Array:
        """Return −(D K + λI)⁻¹ v; multiplied by Xᵀ it is −(Xᵀ D X + λI)⁻¹ Xᵀ v."""
        hessian = self.compute_curvatures(margins)[..., None] * self.rows
        return solve_shifted(hessian, self.lambda_, -gradient)

    def compute_inner_product(self, unknown: Array, step: Array, step_margins: Array) -> Array:
        """Return the inner product aᵀ K s."""
        return np.asarray(np.vecdot(unknown, step_margins))
