"""What an algorithm is: what a party computes, what the server does with the average, and a claim.

An algorithm is a few functions over plain arrays; those of parties are `[B, d]`, where d is the
`dimension` of a contribution. Its `claim` says what a release asks the noise to cover. The server
plans from it; a party calls the same function with its own facts, and declines a plan that does
not cover the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.models.clipping import build_ball, real_ball
from parley.privacy.accounting.rounding import round_up, to_fraction
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.calibration.optimum_sensitivity import Weights
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import NormBounds, Set, compute_sensitivity

if TYPE_CHECKING:
    from parley.privacy.mechanisms.randomised_response import Reports
    from parley.privacy.mechanisms.subsampled_gaussian import PartySteps

_ALL: Final = slice(None)


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """What a claim may depend on.

    Attributes:
        min_records: public n₍₁₎, which no party has fewer records than; where sizes are private
            (add-or-remove-one, or a guarantee of unit party) it bounds none of them.
        total_records: N; n₍₁₎·m where sizes are private.
        max_records: the most records that a party holds; a party knows its own number alone, and
            takes n₍₁₎ where that is private.
    """

    parties: int
    min_records: int
    total_records: int
    max_records: int
    weights: Weights


@dataclass(frozen=True, kw_only=True)
class SampledSums:
    """Secure sums over sampled batches that one release consists of, each with its noise.

    Attributes:
        sampling_rate: q that each may be charged at; 1: not amplified.
        noise_multiplier: σ of the noise wanted on a sum, in clip norms of a record; 0: what the
            budget of the unit needs.
        attendance: p, with which a whole party is in a sum by its own coin; 1: always.
        hidden: nobody knows how that coin fell, and `sampling_rate` is p.
    """

    steps: int
    sampling_rate: float
    noise_multiplier: float
    attendance: float = 1.0
    hidden: bool = False

    @property
    def visible_rate(self) -> float:
        """p of a coin that may be seen; 1: there is none."""
        return 1.0 if self.hidden else self.attendance


@dataclass(frozen=True, kw_only=True)
class GuaranteeClaim:
    """One guarantee that a claim asks for: what the noise has to cover, and whether it is inside.

    Attributes:
        sensitivity: Δ, in L2, before the grid; the rest as in `Claim`.
    """

    unit: Unit
    neighbouring: Neighbouring
    sensitivity: float
    clip_norm: float | None
    steps: PartySteps | Reports | None = None
    sums: SampledSums | None = None
    objective: float | None = None
    releases: int | None = None
    epsilon_share: float = 1.0

    @property
    def inside(self) -> bool:
        """Whether the parties have noise before there is a sum, wherever a job wants a sum's."""
        return self.steps is not None or self.objective is not None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What one release of an algorithm asks the noise to cover.

    A claim names the set that what a record adds lies in, and Δ follows from it alone.

    Attributes:
        features: columns of the rows that it is computed from.
        lies_in: of whole numbers: weight_j·v_j is a sum of vectors of this set, one a record, each
            a function of that record and of public things alone. Of noise inside the party: a
            step's sum. Of a local optimum: where it lies about a point that others' records say.
        grid_bits: b, of those: a whole number is 2^-b.
        whole: weight_j·v_j are of whole numbers; else of real ones, in a ball of such units
            (`parley.client.models.clipping.real_ball`), or clipped once more.
        records: that a unit has at most, each of which adds such a vector.
        steps: with noise inside the party, the noise of its training, or of its records' reports.
        party_norm: S, where v_j is clipped to it for a second guarantee, of unit party.
        classes: K of the labels that it learns; None where labels play no part, 1 for −1/+1 and
            targets.
        lipschitz: G: no record's gradient is longer. 1 where there are no gradients.
        clip_norm: to which every record's share is clipped, if it is.
        gradient_tolerance: κG, of certified local optima.
        grid_length: what rounding to the grid has to be small against; None: each Δ on the sum.
        scale_bits: the grid, where it is the algorithm's own; None: the finest that the ring holds.
        sums: sampled sums that a release consists of; None: one sum, of all records.
        objective: ε₁ of noise inside the parties' objectives; the noise on the sum covers what
            their solvers miss of the exact optima. None: there is none.
        releases: that the noise is scaled for; None: all of the run's. Every one is charged.
        epsilon_share: of the unit's ε that the noise is scaled to; what it costs is charged.
    """

    norm: ClassVar[Literal["L2"]] = "L2"

    dimension: int
    features: int
    bound: float
    unit: Unit
    neighbouring: Neighbouring
    lies_in: Set
    grid_bits: int = 0
    whole: bool = True
    records: int = 1
    steps: PartySteps | Reports | None = None
    party_norm: float | None = None
    weights: Weights = "uniform"
    classes: int | None = None
    lipschitz: float = 1.0
    clip_norm: float | None = None
    lambda_: float = 0.0
    gradient_tolerance: float | None = None
    grid_length: float | None = None
    scale_bits: int | None = None
    work: int = 1
    sums: SampledSums | None = None
    objective: float | None = None
    releases: int | None = None
    epsilon_share: float = 1.0

    def __post_init__(self) -> None:
        if min(self.dimension, self.features) < 1:
            raise ValueError(f"Expected d, features >= 1, got {self.dimension}, {self.features}.")
        for name in ("bound", "sensitivity", "lipschitz"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"Expected a finite {name} > 0, got {getattr(self, name)}.")
        if not 0 < self.epsilon_share <= 1 or (self.releases or 1) < 1:
            raise ValueError("Expected a share of ε in (0, 1] and releases >= 1, got others.")

    @property
    def _lengths_and_unit(self) -> tuple[NormBounds, Fraction]:
        """How far the unit moves the sum of weight_j·v_j, before the grid; and 2^-b."""
        moved = compute_sensitivity(self.lies_in, self.neighbouring, records=self.records)
        return moved.limit_to_dimension(self.dimension), Fraction(2) ** -self.grid_bits

    @cached_property
    def sensitivity(self) -> float:
        """Δ in L2."""
        moved, one = self._lengths_and_unit
        return moved.compute_l2(one)

    @property
    def sensitivity_l1(self) -> float | None:
        """Δ in L1; None of real numbers."""
        moved, one = self._lengths_and_unit
        return round_up(moved.l1 * one) if self.whole else None

    @property
    def inside(self) -> bool:
        """Whether the primary guarantee's noise is inside the parties."""
        return self.guarantees[0].inside

    @property
    def covered_sensitivity(self) -> float:
        """Δ with what the grid of a party's ball adds.

        Clipping to a ball brings no two sums further apart; cutting them to its grid does, by less
        than one unit an entry. Where the noise is inside the party, it was added before.
        """
        if self.party_norm is None or self.steps is not None:
            return self.sensitivity
        return (
            self.sensitivity
            + math.sqrt(self.dimension) * 2.0 ** -build_ball(self.dimension, self.party_norm)[1]
        )

    @property
    def rounding_reference(self) -> float:
        """What rounding to the grid has to be small against."""
        on_sum = [each.sensitivity for each in self.guarantees if not each.inside]
        return self.grid_length or min(on_sum, default=self.covered_sensitivity)

    def is_exact_on(self, units: float) -> bool:
        """Whether every contribution is on a grid of `units` a unit already."""
        return self.whole and units >= 2.0**self.grid_bits

    def compute_grid_sensitivity(self, sensitivity: float, units: float) -> float:
        """Δ on a grid of `units` a unit: √d more, unless every contribution is on it already."""
        rounded = 0.0 if self.is_exact_on(units) else math.sqrt(self.dimension)
        return units * sensitivity + rounded

    @property
    def guarantees(self) -> tuple[GuaranteeClaim, ...]:
        """What the plan has to guarantee, the primary one first; of a party too, with `party_norm`.

        All that a party holds makes a v_j in the ball of radius S.
        """
        own = GuaranteeClaim(
            unit=self.unit,
            neighbouring=self.neighbouring,
            sensitivity=self.covered_sensitivity,
            clip_norm=self.clip_norm,
            steps=self.steps,
            sums=self.sums,
            objective=self.objective,
            releases=self.releases,
            epsilon_share=self.epsilon_share,
        )
        if self.party_norm is None:
            return (own,)
        ball, bits = real_ball(self.dimension, to_fraction(self.party_norm))
        of_party = GuaranteeClaim(
            unit=Unit.PARTY,
            neighbouring=Neighbouring.REPLACE_ONE,
            sensitivity=compute_sensitivity(ball, Neighbouring.REPLACE_ONE).compute_l2(
                Fraction(2) ** -bits
            ),
            clip_norm=self.party_norm,
            # Records' coins do not hide their party.
            sums=self.sums and replace(self.sums, sampling_rate=1.0, noise_multiplier=0.0),
        )
        return own, of_party


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a block of parties computed.

    Attributes:
        values: `[B, d]` v_j, unweighted.
        weighted: they are weight_j·v_j already.
        failed: parties of the block that have nothing they may release (rows not used): local
            optima without a certificate. Nothing else fails, see
            `parley.client.dp_sgd.torch_clipping`.
    """

    values: NDArray[np.floating]
    failed: tuple[int, ...]
    weighted: bool = False

    def apply_weights(
        self, plan: ReleasePlan, sizes: NDArray[np.int64], rows: slice = _ALL
    ) -> NDArray[np.floating]:
        """`[b, d]` weight_j·v_j of some of the parties, of `[B]` sizes."""
        if self.weighted or plan.weights != "size":
            return self.values[rows]
        return np.asarray(self.values[rows] * (sizes[rows] / plan.mean_records)[:, None])


@runtime_checkable
class DirectlySummable(Protocol):
    """An algorithm whose contributions a simulation can sum without making each of them."""

    def compute_sum(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> NDArray[np.float64] | None:
        """`[d]` Σ over the block's parties of what `local` gives; None where each is needed."""


class FederatedAlgorithm(Protocol):
    """A way of learning from noisy averages."""

    kind: ClassVar[str]

    @property
    def model(self) -> Any:
        """What is learned; it has `features` and `check_labels`."""

    @property
    def dimension(self) -> int:
        """d: coordinates of a v_j, the model's and those of `released`."""

    @property
    def assumption(self) -> str:
        """What the claim rests on beyond its proof (`parley.client.contract.list_assumptions`).

        Empty where contributions are exact by construction. Your own has none to say: that its
        claim is right is one.
        """

    def claim(self, facts: PublicFacts) -> Claim:
        """What a release asks the noise to cover: a pure function of the task and the facts."""

    def init(self) -> State:
        """The public start."""

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """What every party of the block would contribute to this round.

        Each by its own records, `block.positions` and `state`: with a seed the same bits whoever
        else is in the block, so that a simulation may ask its parties in turn, or on many machines.
        What it draws comes from `randomness` alone, so that a simulation repeats and a real release
        takes its noise from the operating system.
        """

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """The next state, from the noisy average `[d]`: post-processing."""

    def model_of(self, state: State) -> NDArray[np.float64]:
        """The model to report."""

    def released(self, state: State) -> dict[str, float]:
        """Figures beside the model that the last round released, by name; charged with it."""
