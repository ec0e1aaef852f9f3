"""Gradient perturbation: every round a gradient step along the noisy average of gradients.

For strongly convex linear models with the local objective
J_j(θ) = (1/n_j) Σ ℓ(θ; x, y) + (λ/2)‖θ‖² (Jayaraman et al. 2018, §4; Bassily et al. 2014).

What is summed is every record's gradient over a public n, in whole numbers that depend on that
record alone (`parley.client.models.gradients`). They lie in a ball of radius G/n, so that a record
replaced moves the sum by 2G/n, and one more or less by G/n:

| | n of party j's records | least n |
|---|---|---|
| replace-one, uniform | n_j: w_j·v_j is their mean | n₍₁₎ |
| replace-one, by size | n̄ = N/m: w_j·v_j is n_j/n̄ times their mean | n̄ |
| add-or-remove-one | the public n₍₁₎, whatever n_j is | n₍₁₎ |

Rajkumar & Agarwal 2012: gradient steps on a perturbed objective, with noise in every round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.iterates import Iterates
from parley.client.algorithms.noise_gain import noise_gain
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.state import State
from parley.client.data.block import PartyBlock
from parley.client.models.gradients import MOST_RECORDS, SlopeGrid, gradients
from parley.client.models.linear import LinearModel
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.calibration.sensitivity import Weights
from parley.privacy.sampling.stream import Randomness

_LEAST_STEPS: Final = 64
"""Of a slope's grid below G: on a coarser one most records would add nothing."""


@dataclass(frozen=True, kw_only=True)
class GradientPerturbation(Iterates):
    """Noisy gradient descent: θ ← θ − ηv, v ← βv + g, g = ḡ + λθ; Nesterov: θ ← θ − η(g + βv).

    v_j is made of party j's (clipped) gradients of the data loss; λθ is public and added by the
    server, as momentum is (Nesterov's with the change of variables of Sutskever et al. 2013: the
    gradient is taken at θ). The average over the later half of the iterates may be reported
    instead of the last.

    Attributes:
        lipschitz: G, which bounds every record's gradient.
        learning_rate: η; 1/(L_s + λ) is safe.
        momentum: β in [0, 1).
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
    nesterov: bool = False
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE

    def __post_init__(self) -> None:
        if self._private_sizes and self.weights != "uniform":
            raise ValueError(
                "Expected uniform weights with add-or-remove-one neighbours, where sizes are "
                f"private, got {self.weights}."
            )

    @property
    def _private_sizes(self) -> bool:
        return self.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE

    @property
    def _of_means(self) -> bool:
        return self.weights == "uniform" and not self._private_sizes

    @property
    def dimension(self) -> int:
        """The model's."""
        return self.model.dimension

    @property
    def clip_norm(self) -> float | None:
        """To which every record's gradient is clipped: G, where the loss's own is larger."""
        return self.lipschitz if self.lipschitz < self.model.lipschitz else None

    @property
    def assumption(self) -> str:
        """None: sums are of whole numbers."""
        return ""

    @property
    def bound(self) -> float:
        """G: of a mean of gradients no longer than that; entries of a private party's sum that are
        larger, which takes more records than n₍₁₎, are clamped to it.
        """
        return self.lipschitz

    def init(self) -> State:
        """θ = 0."""
        zero = np.zeros(self.model.dimension)
        return {"theta": zero, "velocity": zero, "average": zero, "round": np.zeros(1)}

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Every party's gradients at θ; none fails, whatever θ and the records are."""
        del randomness
        total = round(plan.mean_records * plan.parties)
        grid, records = self._grid(plan.parties, plan.min_records, total)
        values = gradients(
            self.model,
            state["theta"],
            block,
            self.clip_norm,
            grid=grid,
            records=None if self._of_means else records,
        )
        return Contribution(values=values, failed=(), weighted=True)

    def _grid(self, parties: int, min_records: int, total: int) -> tuple[SlopeGrid, Fraction]:
        """The grid of gradients over n, and the least n; of public numbers alone."""
        if self._private_sizes:
            return SlopeGrid.of(self.lipschitz, private=min_records), Fraction(min_records)
        if self._of_means:
            return SlopeGrid.of(self.lipschitz), Fraction(min_records)
        if total < parties * min_records:
            raise ValueError(f"Expected N >= {parties * min_records}, m times n, got {total}.")
        mean = Fraction(total, parties)
        heaviest = (total - (parties - 1) * min_records) / mean  # all others have no more than n₍₁₎
        return SlopeGrid.of(self.lipschitz, heaviest=float(heaviest)), mean

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """One step along the noisy average gradient."""
        theta = state["theta"]
        gradient = average + self.lambda_ * theta
        velocity = self.momentum * state["velocity"] + gradient
        step = gradient + self.momentum * velocity if self.nesterov else velocity
        theta = np.asarray(self.model.project(theta - self.learning_rate * step), np.float64)
        done = state["round"] + 1
        return self.with_mean(state, {"theta": theta, "velocity": velocity, "round": done})

    def noise_gain(self, done: int) -> float | None:
        """See `parley.client.algorithms.iterates.KnowsGain`.

        None where the Hessian's bound does not hold: of a sum over more records than n₍₁₎, or of
        clipped gradients of several margins, whose derivative need not be symmetric.
        """
        if self._private_sizes or (self.clip_norm and self.model.loss.outputs > 1):
            return None
        return noise_gain(
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            average=self.average,
            lambda_=self.lambda_,
            smoothness=self.model.smoothness,
            done=done,
        )

    def claim(self, facts: PublicFacts) -> Claim:
        """The ball that a record's gradient over the least n lies in."""
        if self._private_sizes and facts.max_records > MOST_RECORDS:
            raise ValueError(
                f"Expected at most {MOST_RECORDS} records of a party, got {facts.max_records}."
            )
        grid, least = self._grid(facts.parties, facts.min_records, facts.total_records)
        most = facts.max_records if self._of_means else least
        if grid.most(most) < _LEAST_STEPS:
            raise ValueError(f"Expected gradients of fewer records to add up, got {most}.")
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=self.bound,
            lies_in=grid.ball(self.dimension, least),
            grid_bits=grid.sum_bits,
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
            weights=self.weights,
            classes=self.model.loss.outputs,
            lipschitz=self.lipschitz,
            clip_norm=self.clip_norm,
            lambda_=self.lambda_,
        )


@dataclass(frozen=True, kw_only=True)
class RajkumarAgarwal(GradientPerturbation):
    """Noisy gradient descent on an objective with a random linear term.

    Attributes:
        tilt_scale: of the term's length, Gamma(d, this): 2/(ε′N).
        tilt_seed: that its direction and length are drawn from, public.
    """

    kind: ClassVar[str] = "rajkumar-agarwal"

    tilt_scale: float
    tilt_seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.tilt_scale < np.inf or self.tilt_seed < 0:
            raise ValueError("Expected tilt_scale > 0 and tilt_seed >= 0, got others.")

    @cached_property
    def tilt(self) -> NDArray[np.float64]:
        """`[d]` b/N: of uniform direction."""
        rng = np.random.default_rng(self.tilt_seed)
        direction = rng.normal(size=self.dimension)
        length = rng.gamma(self.dimension, self.tilt_scale)
        return np.asarray(direction / np.sqrt(direction @ direction) * length)

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """One step along the noisy average gradient of the tilted objective."""
        return super().update(state, average + self.tilt)

    def claim(self, facts: PublicFacts) -> Claim:
        """As gradient perturbation's, with the noise of one round."""
        return replace(super().claim(facts), releases=1)
