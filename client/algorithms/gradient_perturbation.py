"""Gradient perturbation: every round a gradient step along the noisy average of mean gradients.

For strongly convex linear models with the local objective
J_j(θ) = (1/n_j) Σ ℓ(θ; x, y) + (λ/2)‖θ‖² (Jayaraman et al. 2018, §4; Bassily et al. 2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts, State
from parley.client.contract.plan import ReleasePlan
from parley.client.data.block import PartyBlock
from parley.client.models.bounded import clamp
from parley.client.models.linear import LinearModel
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.calibration.sensitivity import Weights, gradient_sensitivity
from parley.privacy.sampling.randomness import Randomness

__all__ = ["GradientPerturbation"]


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

    kind: ClassVar[str] = "gradient-perturbation"

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
    def clip_norm(self) -> float | None:
        """To which every record's gradient is clipped: G, where the loss's own is larger."""
        return self.lipschitz if self.lipschitz < self.model.lipschitz else None

    @property
    def bound(self) -> float:
        """‖v_j‖ ≤ G: a mean of gradients no longer than G."""
        return self.lipschitz

    def init(self) -> State:
        """θ = 0."""
        zero = np.zeros(self.model.dimension)
        return {"theta": zero, "velocity": zero, "average": zero, "round": np.zeros(1)}

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Mean gradients of all parties at θ; none fails, whatever θ and the records are."""
        del plan, randomness
        values = self.model.gradients(state["theta"], block, clip=self.clip_norm)
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

    def claim(self, facts: PublicFacts) -> Claim:
        """2G/n₍₁₎ (uniform), 2G/n̄ (size): one record moves one party's mean gradient."""
        # Sums of n gradients in double precision are off by at most (n + d)·2⁻⁵³·G each (Higham
        # 2002, §4.2), twice between neighbours: n(n + d)·2⁻⁵³ of 2G/n.
        largest = facts.max_records
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=self.bound,
            sensitivity=gradient_sensitivity(
                lipschitz=self.lipschitz,
                parties=facts.parties,
                min_records=facts.min_records,
                total_records=facts.total_records,
                weights=self.weights,
            ).total,
            rounding=largest * (largest + self.dimension + 8) * 2.0**-52,
            unit=Unit.RECORD,
            neighbouring=Neighbouring.REPLACE_ONE,
            weights=self.weights,
            classes=self.model.loss.outputs,
            lipschitz=self.lipschitz,
            clip_norm=self.clip_norm,
            lambda_=self.lambda_,
        )
