"""What a party computes and what the server does with the average.

Two algorithms for strongly convex linear models, local objective
J_j(θ) = (1/n_j) Σ ℓ(θ; x, y) + (λ/2)‖θ‖²:

- gradient perturbation (Jayaraman et al. 2018, §4; Bassily et al. 2014): every round the noisy
  average of the parties' mean gradients, then a gradient step.
- output perturbation (Chaudhuri et al. 2011; Jayaraman et al. 2018, §3): once, the noisy average
  of the parties' local optima, each certified to a gradient norm ≤ κG/n.

An algorithm is four functions over plain arrays: `init`, `local`, `update`, and the `sensitivity`
of the sum of what `local` returns. Arrays of parties are `[B, d]`, where d is the `dimension`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.plan import ReleasePlan
from parley.client.data.block import PartyBlock
from parley.client.models.bounded import clamp
from parley.client.models.linear import LinearModel
from parley.privacy.calibration.sensitivity import Weights, gradient_sensitivity, output_sensitivity

__all__ = [
    "ALGORITHMS",
    "Contribution",
    "FederatedAlgorithm",
    "GradientPerturbation",
    "OutputPerturbation",
    "State",
]

SMALLEST_LAMBDA: Final = 1e-8
SMALLEST_WIDTH: Final = 0.01
SMALLEST_CERTIFICATE: Final = 2.0**-36
"""Of κ/n: the gradient norm that a certificate asks for, in units of G."""

State = dict[str, NDArray[np.float64]]
"""What goes from round to round: named float64 arrays. `theta` is the model, `[d]`."""


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a block of parties computed.

    Attributes:
        values: `[B, d]` v_j, unweighted.
        failed: parties of the block that have nothing they may release (rows not used): local
            optima without a certificate. Nothing else fails, see
            `parley.client.dp_sgd.clip_factors`.
    """

    values: NDArray[np.floating]
    failed: tuple[int, ...]


class FederatedAlgorithm(Protocol):
    """A way of learning from noisy averages."""

    @property
    def model(self) -> Any:
        """What is learned: a linear model, or a network."""

    @property
    def dimension(self) -> int:
        """d: coordinates of a v_j, the model's and those of `released`."""

    @property
    def lipschitz(self) -> float:
        """G: no record's gradient is longer."""

    @property
    def bound(self) -> float:
        """Largest L2 norm of any v_j."""

    def init(self) -> State:
        """The public start."""

    def local(self, state: State, block: PartyBlock, plan: ReleasePlan) -> Contribution:
        """What every party of the block would contribute to this round."""

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """The next state, from the noisy average `[d]`: post-processing."""

    def model_of(self, state: State) -> NDArray[np.float64]:
        """The model to report."""

    def released(self, state: State) -> dict[str, float]:
        """Figures beside the model that the last round released, by name; charged with it."""

    def sensitivity(self, *, parties: int, min_records: int, total_records: int) -> float:
        """L2 sensitivity of the sum over parties of weight_j·v_j, replacing one record."""


@dataclass(frozen=True, kw_only=True)
class GradientPerturbation:
    """Noisy gradient descent: θ ← θ − ηv, v ← βv + ḡ + λθ.

    v_j is party j's mean (clipped) gradient of the data loss; λθ is public and added by the
    server. The average over the later half of the iterates may be reported instead of the last.

    Attributes:
        lipschitz: G, which bounds every record's gradient.
        rounds: T, which says where the later half begins.
        learning_rate: η; 1/(L_s + λ) is safe.
        momentum: β in [0, 1).
        average: report the mean of the iterates after round T/2.
    """

    model: LinearModel
    lambda_: float
    lipschitz: float
    weights: Weights
    rounds: int
    learning_rate: float
    momentum: float
    average: bool

    @property
    def dimension(self) -> int:
        """The model's."""
        return self.model.dimension

    @property
    def bound(self) -> float:
        """‖v_j‖ ≤ G: a mean of gradients no longer than G."""
        return self.lipschitz

    def init(self) -> State:
        """θ = 0."""
        zero = np.zeros(self.model.dimension)
        return {"theta": zero, "velocity": zero, "average": zero, "round": np.zeros(1)}

    def local(self, state: State, block: PartyBlock, plan: ReleasePlan) -> Contribution:
        """Mean gradients of all parties at θ; none fails, whatever θ and the records are."""
        values = self.model.gradients(state["theta"], block, clip=plan.clip_norm)
        # No entry is further out but by rounding; clamping brings no two of them further apart.
        clamp(values, self.bound)
        return Contribution(values=values, failed=())

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """One step along the noisy average gradient."""
        theta = state["theta"]
        velocity = self.momentum * state["velocity"] + average + self.lambda_ * theta
        theta = np.asarray(self.model.project(theta - self.learning_rate * velocity), np.float64)
        done = state["round"] + 1
        later = max(float(done[0]) - self.rounds // 2, 1.0)
        mean = state["average"] + (theta - state["average"]) / later
        return {"theta": theta, "velocity": velocity, "average": mean, "round": done}

    def model_of(self, state: State) -> NDArray[np.float64]:
        """The last iterate, or the mean of the later half (of those there are so far)."""
        later = self.average and state["round"][0] > self.rounds // 2
        return state["average"] if later else state["theta"]

    def released(self, state: State) -> dict[str, float]:
        """Nothing beside the model."""
        del state
        return {}

    def sensitivity(self, *, parties: int, min_records: int, total_records: int) -> float:
        """2G/n₍₁₎ (uniform), 2G/n̄ (size): one record moves one party's mean gradient."""
        return gradient_sensitivity(
            lipschitz=self.lipschitz,
            parties=parties,
            min_records=min_records,
            total_records=total_records,
            weights=self.weights,
        ).total


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation:
    """The noisy average of certified local optima; one round.

    A local optimum is accepted when its gradient norm is at most τ = κG/n_j, so that
    ‖θ̂ − θ*‖ ≤ τ/λ by strong convexity, and the sensitivity of one party's model is
    2G/(n_jλ) + 2τ/λ. A party that cannot certify it fails, and the release with it: that is seen,
    and no noise covers it. So only problems are taken whose certificate no records are known to
    prevent (`check_certifiable`), whatever λ, κ and loss a server would like.

    Attributes:
        lipschitz: G.
        tolerance: κ.
    """

    model: LinearModel
    lambda_: float
    lipschitz: float
    weights: Weights
    tolerance: float

    @property
    def dimension(self) -> int:
        """The model's."""
        return self.model.dimension

    def check_certifiable(self, records: int) -> None:
        """Refuses problems whose optimum double precision may not reach, for some records.

        Newton's method is damped and J is λ-strongly convex, so that in exact arithmetic every
        party gets there. Rounding leaves a gradient of some 2⁻⁵²·G, and steps that are off by
        2⁻⁵²/(λ·h) of themselves, h the width over which the slope changes: both are kept far away.

        Args:
            records: n of a party, or the most that one has.

        Raises:
            ValueError: λ, κ/n or the loss's width is too small.
        """
        if not self.lambda_ >= SMALLEST_LAMBDA:
            raise ValueError(
                f"Expected lambda >= {SMALLEST_LAMBDA:g} with output-perturbation, got "
                f"{self.lambda_:g}: its optima could not be certified for all records."
            )
        if not self.tolerance >= SMALLEST_CERTIFICATE * records:
            raise ValueError(
                f"Expected a tolerance >= {SMALLEST_CERTIFICATE:g} a record, here "
                f"{SMALLEST_CERTIFICATE * records:.3g}, got {self.tolerance:g}."
            )
        if not self.model.smoothness * SMALLEST_WIDTH <= 0.5:
            raise ValueError(
                f"Expected a huber width >= {SMALLEST_WIDTH:g} with output-perturbation, got a "
                "smaller one: its optima could not be certified for all records."
            )

    @property
    def bound(self) -> float:
        """‖θ_j‖ ≤ G(1 + κ)/λ: at the optimum λθ is minus a mean of gradients no longer than G."""
        return self.lipschitz * (1 + self.tolerance) / self.lambda_

    def init(self) -> State:
        """θ = 0, which nothing starts from: every party solves its own problem."""
        return {"theta": np.zeros(self.model.dimension)}

    def local(self, state: State, block: PartyBlock, plan: ReleasePlan) -> Contribution:
        """Every party's certified optimum."""
        # Imported here: solving needs scipy.optimize, planning does not.
        from parley.client.solvers.certified import local_optima

        if plan.tolerance is None:
            raise ValueError("Expected a plan with a tolerance, got None.")
        # κG/n_j is asked of every party; the largest party's is asked of the whole block.
        target = plan.tolerance / int(block.sizes.max())
        optima = local_optima(self.model, block, lam=self.lambda_, tolerance=target)
        failed = tuple(np.flatnonzero(~optima.certified).tolist())
        clamp(optima.theta, self.bound)  # towards the optimum, which lies within
        return Contribution(values=optima.theta, failed=failed)

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """The noisy average is the model."""
        return {"theta": average}

    def model_of(self, state: State) -> NDArray[np.float64]:
        """θ."""
        return state["theta"]

    def released(self, state: State) -> dict[str, float]:
        """Nothing beside the model."""
        del state
        return {}

    def sensitivity(self, *, parties: int, min_records: int, total_records: int) -> float:
        """2G(1 + κ)/(n₍₁₎λ) (uniform) or 2G(1 + κ)/(n̄λ) (size)."""
        return output_sensitivity(
            lipschitz=self.lipschitz,
            lam=self.lambda_,
            parties=parties,
            min_records=min_records,
            total_records=total_records,
            weights=self.weights,
            relative_tolerance=self.tolerance,
        ).total


ALGORITHMS: Final[dict[str, type[GradientPerturbation] | type[OutputPerturbation]]] = {
    "gradient-perturbation": GradientPerturbation,
    "output-perturbation": OutputPerturbation,
}
