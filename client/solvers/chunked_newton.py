"""`PooledSystem`: Newton steps for one problem of millions of records, in pieces.

The non-private baseline of a simulation with many records is computed with it.

    >>> from parley.client.models.logistic_loss import LogisticLoss
    >>> from parley.client.models.linear_models import LinearModel
    >>> from parley.client.solvers.newton import solve_by_newton
    >>> system = PooledSystem(
    ...     model=LinearModel(loss=LogisticLoss(), features=2),
    ...     rows=np.empty((1, 0, 2)),
    ...     labels=np.array([[1.0, -1.0]]),
    ...     weights=np.array([[0.5, 0.5]]),
    ...     lambda_=0.1,
    ...     pooled=np.eye(2),
    ... )
    >>> theta, _ = solve_by_newton(system, np.zeros((1, 2)), np.array([1e-9]), 100)
    >>> gradient, norm = system.compute_gradient(system.compute_margins(theta), theta)
    >>> bool(norm[0] <= 1e-9)
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.sparse_rows import FeatureRows
from parley.client.data.threaded_chunks import map_chunks
from parley.client.models.loss_base import Array
from parley.client.solvers.newton import PrimalSystem, solve_shifted

_PIECE = 1024  # rows read at a time
_SAMPLE = 2**17  # records of a Hessian


@dataclass(frozen=True, kw_only=True)
class PooledSystem(PrimalSystem):
    """One problem of so many records that its rows are read in pieces; one output.

    Directions use the Hessian of every s-th record (Roosta-Khorasani & Mahoney 2019): many cheap
    steps instead of a few dear ones, to the same optimum.

    Attributes:
        pooled: `[n, p]` rows, dense or sparse; `rows` is empty.
    """

    pooled: FeatureRows

    def take(self, chosen: NDArray[np.intp]) -> Self:
        """Return the same system: it has one problem."""
        return self

    def compute_margins(self, unknown: Array) -> Array:
        """Return X θ, in double precision."""

        def multiply(begin: int, end: int) -> Array:
            return self.model.compute_margins(unknown[0], self._read(slice(begin, end)))

        return np.concatenate(map_chunks(multiply, _split(len(self.pooled))))[None]

    def compute_gradient(self, margins: Array, unknown: Array) -> tuple[Array, Array]:
        """Return Xᵀ r + λθ, and its norm."""
        slopes = self.compute_slopes(margins)[0]

        def add(begin: int, end: int) -> Array:
            return self.model.sum_gradients(slopes[begin:end], self._read(slice(begin, end)))

        sums = np.sum(map_chunks(add, _split(len(self.pooled))), axis=0)
        total = sums[None] + self.lambda_ * unknown
        return total, np.sqrt(np.vecdot(total, total))

    def compute_direction(self, margins: Array, gradient: Array, norm: Array) -> Array:
        """Return −(Xᵀ D X + λI)⁻¹ g, with the sum over every s-th record, times s."""
        step = max(len(self.pooled) // _SAMPLE, 1)
        curvature = self.compute_curvatures(margins)[0, ::step]
        curvature *= self.weights.sum() / self.weights[0, ::step].sum()

        def add(begin: int, end: int) -> Array:
            x = self._read(slice(begin * step, end * step, step))
            return np.asarray((x * curvature[begin:end, None]).T @ x)

        hessian = np.sum(map_chunks(add, _split(len(curvature))), axis=0)
        return solve_shifted(hessian[None], self.lambda_, -gradient)

    def _read(self, rows: slice) -> Array:
        return np.asarray(self.pooled[rows], np.float64)


def _split(rows: int) -> list[tuple[int, int]]:
    return [(at, min(at + _PIECE, rows)) for at in range(0, rows, _PIECE)]
