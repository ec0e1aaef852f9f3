"""Certified optima of regularised local objectives, for many parties at once.

J_j(θ) = Σ_i w_i·ℓ(θ; x_i, y_i) + (λ/2)‖θ‖₂² is λ-strongly convex, so ‖∇J_j(θ̂)‖ ≤ τ puts θ̂ within
τ/λ of the optimum. The gradient is evaluated again, from the records, at the θ that is returned. A
bound on its norm, rounded outward, is the certificate
(`parley.client.solvers.optimum_certificate`). Ridge's θ is kept in ‖θ‖₂ ≤ R and never released. Its
certificate is the distance from −∇J to the ball's normal cone, in double precision, which bounds
‖θ̂ − θ*‖ in the same way.

    >>> import numpy as np
    >>> from parley.client.data.party_block import PartyBlock
    >>> from parley.client.models.linear_models import LinearModel
    >>> from parley.client.models.linear_losses import LogisticLoss
    >>> block = PartyBlock(
    ...     features=np.eye(2), labels=np.array([1.0, -1.0]), offsets=np.array([0, 1, 2])
    ... )
    >>> optima = solve_local_optima(LinearModel(loss=LogisticLoss(), features=2), block, 0.1, 1e-9)
    >>> optima.theta.round(4).tolist(), optima.certified.tolist()
    ([[1.6335, 0.0], [0.0, -1.6335]], [True, True])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import PartyBlock
from parley.client.data.record_chunks import map_chunks
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


_MAX_STEPS = 3000
_CHUNK_BYTES = 2 << 20  # of rows and matrices per worker at a time
_MAX_MATRIX_SIZE = (
    1000  # beyond this size of Hessian and Gram matrix, conjugate gradients are faster
)
_MIN_PIECEWISE_ENTRIES = 1 << 24  # of a pooled problem that is not copied to float64
_MARGIN = 0.25  # the loop stops at this fraction of the tolerance, so that the certificate holds


@dataclass(frozen=True, kw_only=True)
class LocalOptima:
    """Results of B parties' solvers.

    Attributes:
        theta: `[B, d]` float64.
        gradient_norm: `[B]` upper bound on the norm of the full local gradient at theta.
        certified: `[B]` whether that bound is ≤ the tolerance; uncertified rows must not be used.
        iterations: `[B]` Newton steps.
    """

    theta: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]
    certified: NDArray[np.bool_]
    iterations: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PooledOptimum:
    """The pooled optimum: theta `[d]`, its certificate and its objective value."""

    theta: NDArray[np.float64]
    gradient_norm: float
    certified: bool
    iterations: int
    loss: float


def solve_local_optima(
    model: LinearModel,
    block: PartyBlock,
    lambda_: float,
    gradient_tolerance: float | NDArray[np.float64],
    *,
    tilt: Array | None = None,
) -> LocalOptima:
    """Minimise each party's J_j, plus its a_jᵀθ, for records on the grid of 2^-16.

    A party's bits do not depend on the others. Parties are batched by size, rounded up by at most
    1/16 with rows of weight 0, and each stops separately. A party that fails is reported as
    uncertified; no error is raised.

    Args:
        gradient_tolerance: τ > 0, on each party's gradient norm, or `[B]` one for each.
        tilt: `[B, d]` a; with a loss of one output that is bounded everywhere.
    """
    from parley.client.solvers.optimum_certificate import bound_gradient_norms, round_to_grid  # noqa: PLC0415 - a pooled optimum has no certificate

    targets = np.broadcast_to(np.asarray(gradient_tolerance, np.float64), block.parties)
    _check(model, block.features, lambda_, float(targets.min()))
    if tilt is not None and tilt.shape != (block.parties, model.dimension):
        raise ValueError(f"Expected tilt [{block.parties}, {model.dimension}], got {tilt.shape}.")
    result = LocalOptima(
        theta=np.zeros((block.parties, model.dimension)),
        gradient_norm=np.full(block.parties, np.nan),
        certified=np.zeros(block.parties, np.bool_),
        iterations=np.zeros(block.parties, np.int64),
    )
    sizes = block.sizes
    padded = _pad_sizes(sizes)
    order = np.argsort(padded, kind="stable")

    def solve(first: int, last: int) -> None:
        parties = order[first:last]
        shape = (last - first, int(padded[parties[0]]))
        position = np.arange(shape[1])
        real = position < sizes[parties, None]
        # Padding rows are zeros with one of the party's labels, and weight 0.
        source = block.offsets[parties, None] + np.where(real, position, 0)
        rows = round_to_grid(block.features[source])
        rows[~real] = 0
        weights = real / sizes[parties, None]
        labels = _convert_labels(model, block.labels[source])
        own = None if tilt is None else tilt[parties]
        theta, norm, steps = _solve(
            model,
            rows,
            labels,
            weights,
            lambda_=lambda_,
            gradient_tolerance=targets[parties],
            tilt=own,
        )
        if np.isinf(model.loss.theta_radius):
            theta, norm = bound_gradient_norms(
                model, rows, labels, real, theta, lambda_=lambda_, tilt=own
            )
        result.theta[parties], result.gradient_norm[parties] = theta, norm
        result.certified[parties], result.iterations[parties] = norm <= targets[parties], steps

    with np.errstate(all="ignore"):  # a party with an overflow gets no certificate
        map_chunks(solve, _split_batches(model, padded[order]))
    return result


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
    _check(model, features, lambda_, gradient_tolerance)
    if weights is None:
        weights = np.full(len(features), 1 / len(features))
    if weights.shape != (len(features),):
        raise ValueError(f"Expected {len(features)} weights, got shape {weights.shape}.")
    with np.errstate(all="ignore"):
        solution = _solve_in_pieces(
            model, features, labels, weights, lambda_=lambda_, gradient_tolerance=gradient_tolerance
        )
        if solution is None:
            rows = np.ascontiguousarray(features, np.float64)[None]
            theta, norm, steps = _solve(
                model,
                rows,
                labels[None],
                weights[None],
                lambda_=lambda_,
                gradient_tolerance=np.array([gradient_tolerance]),
            )
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
    model: LinearModel,
    features: FeatureRows,
    labels: NDArray[Any],
    weights: Array,
    *,
    lambda_: float,
    gradient_tolerance: float,
) -> tuple[Array, Array, NDArray[np.int64], Array] | None:
    """Solve one problem of many records: return theta `[1, d]`, norm, steps and margins `[n]`.

    It is None if the records are few, and for problems that need all rows at once.
    """
    if (
        features.size < _MIN_PIECEWISE_ENTRIES
        or model.loss.outputs > 1
        or model.dimension > _MAX_MATRIX_SIZE
    ):
        return None
    from parley.client.solvers.pooled_newton import PooledSystem  # noqa: PLC0415 - few jobs have so many records

    system = PooledSystem(
        model=model,
        rows=np.empty((1, 0, model.features)),
        labels=_convert_labels(model, labels)[None],
        weights=weights[None],
        lambda_=lambda_,
        pooled=features,
    )
    aim = np.array([_MARGIN * gradient_tolerance])
    theta, steps = solve_by_newton(system, np.zeros((1, model.dimension)), aim, _MAX_STEPS)
    if not np.vdot(theta, theta) <= model.loss.theta_radius**2:
        return None
    return theta, _compute_gradient_norms(system, theta), steps, system.compute_margins(theta)[0]


def _solve(
    model: LinearModel,
    rows: Array,
    labels: NDArray[Any],
    weights: Array,
    *,
    lambda_: float,
    gradient_tolerance: NDArray[np.float64],
    tilt: Array | None = None,
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Solve c problems `[c, n, p]`: return theta `[c, d]`, certificates `[c]`, steps `[c]`."""
    labels = _convert_labels(model, labels)
    method = _choose_method(model, rows.shape[1])
    if tilt is not None and method is DualSystem:  # its unknown spans only the rows
        method = PrimalSystem
    aim = _MARGIN * gradient_tolerance
    if method is DualSystem:
        gram = np.matmul(rows, rows.swapaxes(-1, -2))
        dual = DualSystem(model=model, rows=gram, labels=labels, weights=weights, lambda_=lambda_)
        unknown, steps = solve_by_newton(dual, np.zeros(rows.shape[:2]), aim, _MAX_STEPS)
        theta = model.sum_gradients(unknown, rows)
    else:
        start = np.zeros((len(rows), model.dimension))
        primal = method(
            model=model, rows=rows, labels=labels, weights=weights, lambda_=lambda_, tilt=tilt
        )
        theta, steps = solve_by_newton(primal, start, aim, _MAX_STEPS)
    system = ConjugateGradients(
        model=model, rows=rows, labels=labels, weights=weights, lambda_=lambda_, tilt=tilt
    )
    norm = _compute_gradient_norms(system, theta)
    # A Gram matrix squares the condition of its rows. A few more steps repair the loss of accuracy.
    if method is DualSystem and (weak := np.flatnonzero(~(norm <= gradient_tolerance))).size:
        mended, more = solve_by_newton(system.take(weak), theta[weak], aim[weak], _MAX_STEPS)
        theta[weak], norm[weak] = mended, _compute_gradient_norms(system.take(weak), mended)
        steps[weak] += more
    radius = model.loss.theta_radius
    outside = np.flatnonzero(np.vecdot(theta, theta) > radius**2)
    if outside.size:
        own = system.take(outside)
        theta[outside] = solve_constrained_ridge(
            own.rows, own.labels, own.weights, lambda_, radius=radius
        )
        norm[outside] = _compute_gradient_norms(own, theta[outside])
    return theta, norm, steps


def _compute_gradient_norms(system: NewtonSystem, theta: Array) -> Array:
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


def _convert_labels(model: LinearModel, labels: NDArray[Any]) -> NDArray[Any]:
    return labels.astype(np.int64 if model.loss.outputs > 1 else np.float64, copy=False)


def _choose_method(model: LinearModel, records: int) -> type[PrimalSystem] | type[DualSystem]:
    """Return the fastest way to a Newton direction for n records and d parameters, as measured."""
    dimension = model.dimension
    if model.loss.outputs > 1 or min(records, dimension) > _MAX_MATRIX_SIZE:
        return ConjugateGradients
    return DualSystem if 4 * records <= 5 * dimension else PrimalSystem


def _pad_sizes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round sizes up to multiples of a power of two that is at most 1/16 of them."""
    grain = 2 ** np.maximum(np.frexp(sizes)[1] - 5, 0).astype(np.int64)
    rounded: NDArray[np.int64] = -(-sizes // grain) * grain
    return rounded


def _split_batches(model: LinearModel, padded: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return ranges of consecutive parties of one padded size, as many as stay in cache."""
    cuts = np.flatnonzero(np.diff(padded, prepend=-1))
    ranges: list[tuple[int, int]] = []
    for begin, end in zip(cuts, [*cuts[1:], len(padded)], strict=True):
        records = int(padded[begin])
        matrix = min(records, model.dimension) ** 2 if model.loss.outputs == 1 else 0
        most = max(_CHUNK_BYTES // (8 * (records * model.features + matrix)), 1)
        ranges += [(first, min(first + most, end)) for first in range(begin, end, most)]
    return ranges


def _check(
    model: LinearModel, features: FeatureRows, lambda_: float, gradient_tolerance: float
) -> None:
    if not 0 < lambda_ < np.inf:
        raise ValueError(f"Expected lambda > 0, got {lambda_}.")
    if not 0 < gradient_tolerance < np.inf:
        raise ValueError(f"Expected gradient_tolerance > 0, got {gradient_tolerance}.")
    if features.ndim != 2 or features.shape[1] != model.features:
        raise ValueError(f"Expected rows of {model.features} features, got {features.shape}.")
