"""The party: it checks what a round would release, computes, weighs, encodes and adds its share.

A session serves a block of B parties at once; a real process has B = 1. Nothing is computed for a
party that refuses the plan, and its refusal is a reason, never data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import DirectlySummable, FederatedAlgorithm
from parley.client.contract.model_state import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.party.plan_policy import RefusalRules
from parley.privacy.accounting.composition import Composition
from parley.privacy.sampling.random_stream import Randomness


@dataclass(frozen=True, kw_only=True)
class ReleaseAnswer:
    """What a block of parties answers to one plan.

    Attributes:
        encoded: `[B, d]` ring elements; rows of parties in `refused` are not to be used.
        refused: party index → reason, by the plan and public facts alone.
        failed: parties whose computation is not certified. A simulation ends there, loudly. A real
            party sends what it has, which is within the plan's bound: that it failed would depend
            on its records, and be seen.
    """

    encoded: NDArray[np.unsignedinteger[Any]]
    weights: NDArray[np.float64]
    refused: dict[int, str]
    failed: tuple[int, ...]


@dataclass
class _PartialRelease:
    """What a block gave to one release so far: `parties` [B] did.

    Attributes:
        plan_key: the plan, and whether shares of noise were left to a dealer.
    """

    plan_key: tuple[ReleasePlan, bool]
    encoded: NDArray[np.unsignedinteger[Any]]
    parties: NDArray[np.bool_]
    failed: set[int] = field(default_factory=set)


@dataclass
class PartySession:
    """A block of parties through one run.

    Attributes:
        spent_before: what the plan's primary unit was charged before the first round of this run's
            plan.
        answered_releases: `[B]` how many releases each party has computed for; each is charged
            whether or not its sum was ever opened, and whole, however many of its sums a party is
            in.
    """

    block: PartyBlock
    algorithm: FederatedAlgorithm
    rules: RefusalRules
    randomness: Randomness
    spent_before: Composition = field(default_factory=Composition.create_empty)
    answered_releases: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.algorithm.model.check_labels(self.block.labels)
        self.answered_releases = np.zeros(self.block.parties, dtype=np.int64)
        self._summing_algorithm = (
            self.algorithm if isinstance(self.algorithm, DirectlySummable) else None
        )
        self._partial: _PartialRelease | None = None
        self._round, self._charged = -1, np.zeros(self.block.parties, dtype=np.bool_)

    def answer(
        self,
        plan: ReleasePlan,
        state: State,
        *,
        declining: NDArray[np.int64] | None = None,
        without_noise: bool = False,
    ) -> ReleaseAnswer:
        """Checks the plan for every party, computes for those that accept it, and encodes.

        With noise in shares a round that is asked for again gets the very same vectors: the same
        gradient under another share would be a separate release.

        Args:
            declining: parties that will not take part this time, whatever the plan says.
            without_noise: no shares are added here: a simulation's dealer adds them to the sum, in
                one.

        Raises:
            EncodingError: a value that is not finite or beyond the plan's bound: a bug or a
                broken model, never silently wrapped.
            ValueError: a seed, for a plan that is not seeded.
        """
        self.randomness.check(seeded=plan.seeded)
        partial = self._get_partial_release(plan, without_noise)
        refused = self.find_refusals(plan, declining)
        weights = self.compute_weights(plan)
        accepts = np.ones(self.block.parties, dtype=bool)
        accepts[list(refused)] = False
        willing = np.flatnonzero(accepts & ~partial.parties)
        if willing.size:
            all_willing = willing.size == self.block.parties
            block = self.block if all_willing else self.block.take(willing)
            contribution = self.algorithm.local(state, block, plan, self.randomness)
            partial.failed.update(int(willing[row]) for row in contribution.failed)
            partial.parties[willing] = True
            self.charge(plan, willing)
            values = contribution.apply_weights(plan, block.sizes)
            partial.encoded[willing] = self.encode_values(plan, values, willing, without_noise)
        return ReleaseAnswer(
            encoded=partial.encoded,
            weights=weights,
            refused=refused,
            failed=tuple(sorted(partial.failed - set(refused))),
        )

    def compute_sum(
        self, plan: ReleasePlan, state: State
    ) -> NDArray[np.unsignedinteger[Any]] | None:
        """`[d]` the sum of all parties' contributions, without any of them; None where not all do.

        For a simulation that deals the noise, whose law is that of the sum alone: Σ is rounded to
        the grid once, where every contribution would be.
        """
        if self._summing_algorithm is None or self.find_refusals(plan):
            return None
        self.randomness.check(seeded=plan.seeded)
        values = self._summing_algorithm.compute_sum(state, self.block, plan, self.randomness)
        if values is None:
            return None
        self.charge(plan, slice(None))
        encoding = replace(plan.encoding, bound=plan.encoding.bound * plan.parties)
        total: NDArray[np.unsignedinteger[Any]] = encoding.encode(values[None])[0]
        return total

    def charge(self, plan: ReleasePlan, parties: NDArray[np.int64] | slice) -> None:
        """Counts this release for parties that compute for it, once whatever it is asked for."""
        if plan.round_number != self._round:
            self._round = plan.round_number
            self._charged[:] = False
        self.answered_releases[parties] += ~self._charged[parties]
        self._charged[parties] = True

    def _get_partial_release(self, plan: ReleasePlan, without_noise: bool) -> _PartialRelease:
        """What a round with noise in shares was answered with already; else nothing."""
        partial = self._partial
        if (
            partial is None
            or plan.shared_guarantee is None
            or partial.plan_key != (plan, without_noise)
        ):
            self._partial = None  # what was given before is let go of before more is made
            shape = (self.block.parties, plan.dimension)
            partial = self._partial = _PartialRelease(
                plan_key=(plan, without_noise),
                encoded=np.zeros(shape, dtype=plan.encoding.dtype),
                parties=np.zeros(self.block.parties, dtype=bool),
            )
        return partial

    def encode_values(
        self,
        plan: ReleasePlan,
        values: NDArray[np.floating],
        parties: NDArray[np.int64],
        without_noise: bool,
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Ring elements of these parties' values, with a share of the noise if the plan has any."""
        if plan.shared_guarantee is None or without_noise:
            return plan.encoding.encode(values)
        number, step = plan.round_number, plan.step
        if self.randomness.seeded:  # by party: as each of them would draw by itself
            places = self.block.get_positions()[parties].tolist()
            streams = [self.randomness.open_noise_share(number, place, step) for place in places]
        else:
            streams = [self.randomness.open_noise_share(number)] * len(parties)
        return plan.encode(values, streams)

    def compute_weights(self, plan: ReleasePlan) -> NDArray[np.float64]:
        """`[B]` public weights."""
        if plan.weights == "size":
            return self.block.sizes / plan.mean_records
        return np.ones(self.block.parties)

    def find_refusals(
        self, plan: ReleasePlan, declining: NDArray[np.int64] | None = None
    ) -> dict[int, str]:
        """Party → why not: by the plan and public facts, or because it is in `declining`."""
        # What this very release is charged already is not charged again.
        answered_before = self.answered_releases - (
            self._charged if plan.round_number == self._round else 0
        )
        refusals = self.rules.find_refusals(
            plan, self.block.sizes, answered=answered_before, spent=self.spent_before
        )
        if declining is not None:
            refusals |= dict.fromkeys(declining.tolist(), "declined")
        return refusals
