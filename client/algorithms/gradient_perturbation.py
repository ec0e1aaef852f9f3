"""Gradient perturbation: each round is a gradient step along the noisy average of gradients.

For strongly convex linear models with the local objective J_j(θ) = (1/n_j) Σ ℓ(θ; x, y) + (λ/2)‖θ‖²
(Jayaraman et al. 2018, §4; Bassily et al. 2014).

The sum adds each record's gradient over a public n, in whole numbers that depend only on that
record (`parley.client.models.integer_gradients`). They lie in a ball of radius G/n. Replacing a
record therefore moves the sum by 2G/n, and adding or removing one by G/n:

| | n of party j's records | least n |
|---|---|---|
| replace-one, uniform | n_j: w_j·v_j is their mean | n₍₁₎ |
| replace-one, by size | n̄ = N/m: w_j·v_j is n_j/n̄ times their mean | n̄ |
| add-or-remove-one | the public n₍₁₎, for any n_j | n₍₁₎ |

Clipping cuts long tails of targets, so a model's predictions are too small on average. The last
rounds can correct this. They learn one number, the missing level of all predictions, with four
times the clip norm: from gradients of a quarter of the length, on the same grid, in the same ball.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts, Weights
from parley.client.algorithms.iterative_algorithm import IterativeAlgorithm
from parley.client.algorithms.linear_task_codec import build_linear_spec
from parley.client.algorithms.noise_propagation import compute_noise_gain
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.models.integer_gradients import MAX_RECORDS, SlopeGrid, compute_gradients
from parley.client.models.linear_models import LinearModel
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness

_MIN_STEPS: Final = 64
"""Minimum number of grid steps between 0 and G. On a coarser grid most records would add nothing.
"""

_LEVEL_FACTOR: Final = 4
"""Factor on the clip norm while the level is learned: a power of two."""


@dataclass(frozen=True, kw_only=True)
class GradientPerturbation(IterativeAlgorithm):
    """Noisy gradient descent: θ ← θ − ηv, v ← βv + g, g = ḡ + λθ; Nesterov: θ ← θ − η(g + βv).

    v_j is computed from party j's (clipped) gradients of the data loss. λθ is public and added by
    the server, as is momentum (Nesterov's with the change of variables of Sutskever et al. 2013:
    the gradient is taken at θ). The average over the later half of the iterates may be reported
    instead of the last.

    Attributes:
        lipschitz: G, upper bound on each record's gradient.
        learning_rate: η; 1/(L_s + λ) is safe.
        momentum: β in [0, 1).
        level_rounds: number of last rounds that learn the missing level of all predictions; the
            other rounds are the T steps.
        level_columns: for rows without a constant at their end: the number of columns they come
            from. A column's features add up to 1 before rows are scaled (linear splines).
    """

    kind: ClassVar[str] = "gradient-perturbation"
    assumption: ClassVar[str] = ""  # sums are of whole numbers

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
    level_rounds: int = 0
    level_columns: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.level_rounds < self.rounds or self.level_columns < 0:
            raise ValueError(
                f"Expected 0 to {self.rounds - 1} level_rounds of {self.rounds} and level_columns "
                f">= 0, got {self.level_rounds} and {self.level_columns}."
            )
        if self.level_rounds and self.model.loss.outputs > 1:
            got = self.level_rounds
            raise ValueError(f"Expected no level_rounds with several margins, got {got}.")
        if self._private_sizes and self.weights != "uniform":
            raise ValueError(
                "Expected uniform weights with add-or-remove-one neighbours, because sizes are "
                f"private, got {self.weights}."
            )

    @property
    def steps(self) -> int:
        """Rounds T before those of the level."""
        return self.rounds - self.level_rounds

    @property
    def _private_sizes(self) -> bool:
        return self.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE

    @property
    def _averages_records(self) -> bool:
        return self.weights == "uniform" and not self._private_sizes

    @property
    def dimension(self) -> int:
        """Dimension of the model."""
        return self.model.dimension

    @property
    def clip_norm(self) -> float | None:
        """Norm to which each record's gradient is clipped: G, if the loss's own bound is larger."""
        return self.lipschitz if self.lipschitz < self.model.lipschitz else None

    @property
    def bound(self) -> float:
        """Bound G on the entries of a mean of gradients, which are no longer than G.

        Larger entries of a private party's sum take more records than n₍₁₎ and are clamped to it.
        """
        return self.lipschitz

    def init(self) -> State:
        """Return the state of θ = 0."""
        zero = np.zeros(self.model.dimension)
        return {"theta": zero, "velocity": zero, "average": zero, "round": np.zeros(1)}

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's gradients at θ; none fails, for any θ and records."""
        total = round(plan.mean_records * plan.parties)
        grid, records = self._build_grid(plan.parties, plan.min_records, total)
        values = compute_gradients(
            self.model,
            state["theta"],
            block,
            self.clip_norm,
            divisor=_LEVEL_FACTOR if plan.round_number > self.steps else 1,
            grid=grid,
            records=None if self._averages_records else records,
        )
        return Contribution(values=values, failed=(), weighted=True)

    def _build_grid(self, parties: int, min_records: int, total: int) -> tuple[SlopeGrid, Fraction]:
        """Return the grid of gradients over n, and the least n, from public numbers only."""
        if self._private_sizes:
            return SlopeGrid.choose(self.lipschitz, private=min_records), Fraction(min_records)
        if self._averages_records:
            return SlopeGrid.choose(self.lipschitz), Fraction(min_records)
        if total < parties * min_records:
            raise ValueError(f"Expected N >= {parties * min_records}, m times n, got {total}.")
        mean = Fraction(total, parties)
        heaviest = (total - (parties - 1) * min_records) / mean  # all others have no more than n₍₁₎
        return SlopeGrid.choose(self.lipschitz, max_weight=float(heaviest)), mean

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """Make one step along the noisy average gradient; in the last rounds, of the level only."""
        if self.level_rounds and state["round"][0] >= self.steps:
            return self._update_level(state, average)
        theta = state["theta"]
        gradient = average + self.lambda_ * theta
        velocity = self.momentum * state["velocity"] + gradient
        step = gradient + self.momentum * velocity if self.nesterov else velocity
        theta = np.asarray(self.model.project(theta - self.learning_rate * step), np.float64)
        done = state["round"] + 1
        after = self.with_mean(state, {"theta": theta, "velocity": velocity, "round": done})
        last = self.level_rounds and done[0] == self.steps
        return {**after, "theta": self.model_of(after)} if last else after

    def _update_level(self, state: State, average: NDArray[np.float64]) -> State:
        """Add to the model the level missing from its predictions, averaged over the rounds so far.

        ⟨θ₁, x⟩ is 1, or nearly, for each row x, so that ⟨θ₁, ḡ⟩ is the mean excess.
        """
        done = state["round"] + 1
        lacking = -_LEVEL_FACTOR * (average @ self._one) / (done[0] - self.steps)
        moved = state["theta"] + np.multiply.outer(lacking, self._one)
        theta = np.asarray(self.model.project(moved), np.float64)
        return {**state, "theta": theta, "average": theta, "round": done}

    @cached_property
    def _one(self) -> NDArray[np.float64]:
        """`[d]` θ₁. Rows of linear splines on p columns have a squared norm of p/2 to p before
        scaling.
        """
        if self.level_columns:
            return np.full(self.dimension, np.sqrt(5 / (6 * self.level_columns)))
        one = np.zeros(self.dimension)
        one[-1] = np.sqrt(2)
        return one

    def compute_noise_gain(self, done: int) -> float | None:
        """Return the bound of `parley.client.algorithms.iterative_algorithm.HasNoiseGain`.

        Along θ₁, the level's direction, the gain is larger. None if the Hessian's bound does not
        hold: for a sum over more records than n₍₁₎, or for clipped gradients of several margins,
        whose derivative need not be symmetric.
        """
        if self._private_sizes or (self.clip_norm and self.model.loss.outputs > 1):
            return None
        return compute_noise_gain(
            rounds=self.steps,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            average=self.average,
            lambda_=self.lambda_,
            smoothness=self.model.smoothness,
            done=min(done, self.steps),
        )

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim the ball that contains a record's gradient over the least n."""
        if self._private_sizes and facts.max_records > MAX_RECORDS:
            got = facts.max_records
            raise ValueError(f"Expected at most {MAX_RECORDS} records per party, got {got}.")
        grid, min_count = self._build_grid(facts.parties, facts.min_records, facts.total_records)
        max_count = facts.max_records if self._averages_records else min_count
        if grid.compute_max_slope(max_count) < _MIN_STEPS:
            why = "most of their gradients would round to 0"
            raise ValueError(f"Expected fewer records per party, got {max_count}: {why}.")
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=self.bound,
            lies_in=grid.build_ball(self.dimension, min_count),
            grid_bits=grid.sum_bits,
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
            weights=self.weights,
            classes=self.model.loss.outputs,
            lipschitz=self.lipschitz,
            clip_norm=self.clip_norm,
            lambda_=self.lambda_,
        )


BOUNDED_GRADIENTS = ", and a record's gradient is bounded by the loss or clipped"
"""Condition of the claim, as statements word it."""

SPEC = build_linear_spec(
    GradientPerturbation, title="gradient perturbation", bounded=BOUNDED_GRADIENTS
)
