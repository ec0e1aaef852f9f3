"""`FederatedAlgorithm`: what a party computes, what the server does with the average, and a claim.

An algorithm is a few functions over plain arrays. Arrays of parties are `[B, d]`, where d is the
`dimension` of a contribution. Its `claim` states what the noise of a release must cover. The server
plans from it. A party calls the same function with its own facts and declines a plan that does not
cover the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.rounding import round_up, to_fraction
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import NormBounds, Set, compute_sensitivity

if TYPE_CHECKING:
    from parley.privacy.mechanisms.randomised_response import Reports
    from parley.privacy.mechanisms.subsampled_gaussian import PartySteps

Weights = Literal["uniform", "size"]
"""Weights of the parties in an average: 1, or their numbers of records over the mean."""

_ALL: Final = slice(None)


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """Facts that a claim may depend on.

    Attributes:
        min_records: public n₍₁₎: no party has fewer records. If sizes are private
            (add-or-remove-one, or a guarantee of unit party) it bounds no party's size.
        total_records: N; n₍₁₎·m if sizes are private.
        max_records: the most records that a party holds. A party knows only its own number, and
            uses n₍₁₎ if that is private.
    """

    parties: int
    min_records: int
    total_records: int
    max_records: int
    weights: Weights


@dataclass(frozen=True, kw_only=True)
class SampledSums:
    """Secure sums over sampled batches in one release, each with its noise.

    Attributes:
        sampling_rate: q at which each sum may be charged; 1: no amplification.
        noise_multiplier: requested σ of a sum's noise, in clip norms of a record; 0: what the
            unit's budget requires.
        attendance: p, the probability of a whole party's own coin to be in a sum; 1: always.
        hidden: no one else learns the coin, and `sampling_rate` is p.
    """

    steps: int
    sampling_rate: float
    noise_multiplier: float
    attendance: float = 1.0
    hidden: bool = False

    @property
    def visible_rate(self) -> float:
        """p of a coin that others may see; 1: there is none."""
        return 1.0 if self.hidden else self.attendance


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the noise of one release of an algorithm must cover.

    A claim names the set that contains what a record adds. Δ follows only from this set.

    Attributes:
        features: columns of the rows from which it is computed.
        lies_in: for whole numbers: weight_j·v_j is a sum of vectors of this set, one per record.
            Each vector is a function only of that record and public values. For noise inside the
            party: the set of a step's sum. For a local optimum: its set around a point that depends
            on the others' records.
        grid_bits: b of the whole numbers: a unit is 2^-b.
        whole: weight_j·v_j consists of whole numbers. Otherwise it is real, in a ball of such units
            (`parley.client.models.contribution_clipping.build_real_ball`), or clipped once more.
        records: maximum number of records per unit, each of which adds such a vector.
        steps: noise inside the party: that of its training, or of its records' reports.
        party_norm: S, if v_j is clipped to it for a second guarantee, of unit party.
        classes: K of the labels that it learns; None if labels play no part, 1 for −1/+1 and
            targets.
        lipschitz: G: no record's gradient is longer. 1 if there are no gradients.
        clip_norm: norm to which each record's contribution is clipped, if it is.
        gradient_tolerance: κG, for certified local optima.
        grid_length: length that rounding to the grid must be small against; None: each Δ on the
            sum.
        scale_bits: the grid, if the algorithm fixes it; None: the finest that the ring holds.
        sums: sampled sums in a release; None: one sum, over all records.
        objective: ε₁ of noise inside the parties' objectives. The noise on the sum then covers the
            distance of the solvers' results from the exact optima. None: no such noise.
        releases: number of releases that the noise is scaled for; None: all of the run's. Each one
            is charged.
        epsilon_share: fraction of the unit's ε that the noise is scaled to; its actual cost is
            charged.
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
            expected = "Expected a share of ε in (0, 1] and releases >= 1"
            raise ValueError(f"{expected}, got {self.epsilon_share} and {self.releases}.")

    @property
    def _lengths_and_unit(self) -> tuple[NormBounds, Fraction]:
        """How far the unit moves the sum of weight_j·v_j, before the grid; and 2^-b."""
        moved = compute_sensitivity(self.lies_in, self.neighbouring, records=self.records)
        return moved.limit_to_dimension(self.dimension), Fraction(2) ** -self.grid_bits

    @cached_property
    def sensitivity(self) -> float:
        """Sensitivity Δ in L2."""
        moved, one = self._lengths_and_unit
        return moved.compute_l2(one)

    @property
    def sensitivity_l1(self) -> float | None:
        """Sensitivity Δ in L1; None for real numbers."""
        moved, one = self._lengths_and_unit
        return round_up(moved.l1 * one) if self.whole else None

    @property
    def inside(self) -> bool:
        """Whether the parties add noise before there is a sum, for any noise point of a job."""
        return self.steps is not None or self.objective is not None

    @property
    def covered_sensitivity(self) -> float:
        """Δ plus what the grid of a party's ball adds.

        Clipping to a ball never moves two sums further apart. Cutting them to its grid does, by
        less than one unit per entry. With noise inside the party, this was added before.
        """
        if self.party_norm is None or self.steps is not None:
            return self.sensitivity
        from parley.client.models.contribution_clipping import build_ball  # noqa: PLC0415 - spares its code for contributions that are not clipped

        bits = build_ball(self.dimension, self.party_norm)[1]
        return self.sensitivity + math.sqrt(self.dimension) * 2.0**-bits

    @property
    def rounding_reference(self) -> float:
        """Length that rounding to the grid must be small against."""
        on_sum = [each.covered_sensitivity for each in self.guarantees if not each.inside]
        return self.grid_length or min(on_sum, default=self.covered_sensitivity)

    def is_exact_on(self, units: float) -> bool:
        """Return whether each contribution is already on a grid with `units` per unit."""
        return self.whole and units >= 2.0**self.grid_bits

    def compute_grid_sensitivity(self, sensitivity: float, units: float) -> float:
        """Return Δ on a grid with `units` per unit: √d more, unless contributions are already on
        it.
        """
        rounded = 0.0 if self.is_exact_on(units) else math.sqrt(self.dimension)
        return units * sensitivity + rounded

    @cached_property
    def guarantees(self) -> tuple[Claim, ...]:
        """One claim per guarantee that the plan must give, this one first; with `party_norm`, a
        second one of unit party.

        All records of a party together give a v_j in the ball of radius S.
        """
        if self.party_norm is None:
            return (self,)
        from parley.client.models.contribution_clipping import build_real_ball  # noqa: PLC0415 - likewise

        ball, bits = build_real_ball(self.dimension, to_fraction(self.party_norm))
        of_party = replace(
            self,
            unit=Unit.PARTY,
            neighbouring=Neighbouring.REPLACE_ONE,
            lies_in=ball,
            grid_bits=bits,
            whole=False,
            records=1,
            party_norm=None,
            clip_norm=self.party_norm,
            steps=None,
            # Records' coins do not hide their party.
            sums=self.sums and replace(self.sums, sampling_rate=1.0, noise_multiplier=0.0),
            objective=None,
            releases=None,
            epsilon_share=1.0,
        )
        return self, of_party


@dataclass(frozen=True, kw_only=True, repr=False)
class Contribution:
    """Result of a block of parties.

    Attributes:
        values: `[B, d]` v_j, unweighted.
        weighted: the values are weight_j·v_j already.
        failed: parties of the block without a result that may be released (rows not used): local
            optima without a certificate. No other computation fails, see
            `parley.client.dp_sgd.torch_clipping`.
    """

    values: NDArray[np.floating]
    failed: tuple[int, ...]
    weighted: bool = False

    def apply_weights(
        self, plan: ReleasePlan, sizes: NDArray[np.int64], rows: slice = _ALL
    ) -> NDArray[np.floating]:
        """Return `[b, d]` weight_j·v_j of some of the parties, given `[B]` sizes."""
        if self.weighted or plan.weights != "size":
            return self.values[rows]
        return np.asarray(self.values[rows] * (sizes[rows] / plan.mean_records)[:, None])


@runtime_checkable
class DirectlySummable(Protocol):
    """Algorithm whose contributions a simulation can sum without computing each one."""

    def compute_sum(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> NDArray[np.float64] | None:
        """Return `[d]` Σ of the parties' `local` results; None if each contribution is needed."""


class FederatedAlgorithm(Protocol):
    """Algorithm that learns from noisy averages."""

    kind: ClassVar[str]

    @property
    def model(self) -> Any:
        """Model that is learned; it has `features` and `check_labels`."""

    @property
    def dimension(self) -> int:
        """d: coordinates of a v_j, the model's and those of `released`."""

    @property
    def assumption(self) -> str:
        """Assumption of the claim beyond its proof (`parley.client.contract.assumptions`).

        Empty if contributions are exact by construction. A user-defined algorithm declares none:
        that its claim is right is an assumption.
        """

    def claim(self, facts: PublicFacts) -> Claim:
        """Return what a release's noise must cover: a pure function of the task and the facts."""

    def init(self) -> State:
        """Return the public initial state."""

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute what each party of the block would contribute to this round.

        Each party uses only its own records, `block.positions` and `state`. With a seed its bits do
        not depend on the other parties in the block, so a simulation may compute its parties in
        turn, or on many machines. All randomness comes from `randomness`: a simulation repeats, and
        a real release takes its noise from the operating system.
        """

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """Return the next state, from the noisy average `[d]`: post-processing."""

    def model_of(self, state: State) -> NDArray[np.float64]:
        """Return the model to report."""

    def released(self, state: State) -> dict[str, float]:
        """Return values other than the model that the last round released, by name; charged with
        it.
        """
