"""`ConjugateGradients`: Newton directions from Hessian-vector products, without a Hessian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parley.client.models.loss_base import Array
from parley.client.solvers.newton import PrimalSystem


@dataclass(frozen=True, kw_only=True)
class ConjugateGradients(PrimalSystem):
    """Unknown θ `[c, d]`; the direction by conjugate gradients, any number of outputs."""

    def compute_direction(self, margins: Array, gradient: Array, norm: Array) -> Array:
        """Return −H⁻¹ g to a residual of min(0.1, √‖g‖)·‖g‖: superlinear (Dembo et al. 1982)."""
        curvature = self.model.loss.compute_curvatures(margins, self.labels)
        step, residual = np.zeros_like(gradient), -gradient
        target = norm * np.minimum(0.1, np.sqrt(norm))
        size, active = np.square(norm), np.arange(len(norm))
        heading, rows, lambda_ = residual.copy(), self.rows, self.lambda_
        own = self
        for _ in range(2 * gradient.shape[1]):
            change = own.model.compute_margins(heading, rows)
            product = own.weigh(own.model.loss.apply_curvature(curvature, change))
            image = own.model.sum_gradients(product, rows) + lambda_ * heading
            along = size / np.vecdot(heading, image)
            step[active] += along[:, None] * heading
            residual -= along[:, None] * image
            fresh = np.vecdot(residual, residual)
            going = np.sqrt(fresh) > target[active]
            heading = residual + (fresh / size)[:, None] * heading
            size = fresh
            if not going.all():
                left = np.flatnonzero(going)
                if not len(left):
                    break
                own, active = own.take(left), active[left]
                rows, curvature = own.rows, curvature[left]
                heading, residual, size = heading[left], residual[left], size[left]
        return step
