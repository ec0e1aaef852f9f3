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
    >>> from parley.client.models.logistic_loss import LogisticLoss
    >>> block = PartyBlock(
    ...     features=np.eye(2), labels=np.array([1.0, -1.0]), offsets=np.array([0, 1, 2])
    ... )
    >>> optima = solve_local_optima(LinearModel(loss=LogisticLoss(), features=2), block, 0.1, 1e-9)
    >>> optima.theta.round(4).tolist(), optima.certified.tolist()
    ([[1.6335, 0.0], [0.0, -1.6335]], [True, True])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import PartyBlock
from parley.client.data.threaded_chunks import map_chunks
from parley.client.models.linear_models import LinearModel
from parley.client.models.loss_base import Array
from parley.client.solvers.batched_optima import check_problem, convert_labels, solve_problems
from parley.client.solvers.newton import PrimalSystem

_CHUNK_BYTES = 2 << 20  # of rows and matrices per worker at a time


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
    check_problem(model, block.features, lambda_, float(targets.min()))
    if tilt is not None and tilt.shape != (block.parties, model.dimension):
        raise ValueError(f"Expected tilt [{block.parties}, {model.dimension}], got {tilt.shape}.")
    result = LocalOptima(
        theta=np.zeros((block.parties, model.dimension)),
        gradient_norm=np.full(block.parties, np.nan),
        certified=np.zeros(block.parties, np.bool_),
        iterations=np.zeros(block.parties, np.int64),
    )
    sizes = block.sizes
    # Round up to multiples of a power of two that is at most 1/16 of them.
    grain = 2 ** np.maximum(np.frexp(sizes)[1] - 5, 0).astype(np.int64)
    padded = -(-sizes // grain) * grain
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
        labels = convert_labels(model, block.labels[source])
        problem: Any = {"model": model, "rows": rows, "labels": labels, "lambda_": lambda_}
        problem["tilt"] = None if tilt is None else tilt[parties]
        system = PrimalSystem(weights=weights, **problem)
        theta, norm, steps = solve_problems(system, targets[parties])
        if np.isinf(model.loss.theta_radius):
            theta, norm = bound_gradient_norms(real=real, theta=theta, **problem)
        result.theta[parties], result.gradient_norm[parties] = theta, norm
        result.certified[parties], result.iterations[parties] = norm <= targets[parties], steps

    with np.errstate(all="ignore"):  # a party with an overflow gets no certificate
        map_chunks(solve, _split_batches(model, padded[order]))
    return result


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
