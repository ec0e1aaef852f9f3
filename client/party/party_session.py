"""`PartySession`: a block of parties that check, compute, weight and encode, and add noise shares.

A session serves a block of B parties at once; a real process has B = 1. For a party that refuses
the plan nothing is computed. Its refusal is a reason, never data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import DirectlySummable, FederatedAlgorithm
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.composition import Composition
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.encoding import Ring


@dataclass(frozen=True, kw_only=True)
class ReleaseAnswer:
    """The answers of a block of parties to one plan.

    Attributes:
        encoded: `[B, d]` ring elements. Rows of parties in `refused` must not be used.
        refused: party index → reason, decided only by the plan and public facts.
        failed: parties whose computation is not certified. A simulation stops with an error. A real
            party sends its result, which is within the plan's bound. A visible failure would depend
            on its records.
    """

    encoded: Ring
    weights: NDArray[np.float64]
    refused: dict[int, str]
    failed: tuple[int, ...]


@dataclass
class _PartialRelease:
    """The contributions of a block to one release so far, from the parties in `parties` [B].

    Attributes:
        plan_key: the plan, and whether noise shares were left to central noise.
    """

    plan_key: tuple[ReleasePlan, bool]
    encoded: Ring
    parties: NDArray[np.bool_]
    failed: set[int] = field(default_factory=set)


@dataclass
class PartySession:
    """A block of parties in one run.

    Attributes:
        spent_before: the charges of the plan's primary unit before the first round of this run's
            plan.
        answered_releases: `[B]` number of releases that each party has computed for. Each is
            charged whether or not its sum was ever unmasked. It is charged completely, however many
            of its sums a party is in.
    """

    block: PartyBlock
    algorithm: FederatedAlgorithm
    rules: RefusalRules
    randomness: Randomness
    spent_before: Composition = field(default_factory=Composition)
    answered_releases: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.algorithm.model.check_labels(self.block.labels)
        self.answered_releases = np.zeros(self.block.parties, dtype=np.int64)
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
        """Check the plan for every party, compute for those that accept it, and encode.

        With noise in shares, a repeated round gets exactly the same vectors. The same gradient with
        another share would be a separate release.

        Args:
            declining: parties that do not take part this time, whatever the plan is.
            without_noise: whether to add no shares here. A simulation with central noise adds them
                to the sum at once.

        Raises:
            EncodingError: a value is not finite or exceeds the plan's bound. This is a bug or a
                broken model, and is never silently wrapped.
            ValueError: there is a seed, but the plan is not seeded.
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
        encoded, failed = partial.encoded, tuple(sorted(partial.failed - set(refused)))
        return ReleaseAnswer(encoded=encoded, weights=weights, refused=refused, failed=failed)

    def compute_sum(self, plan: ReleasePlan, state: State) -> Ring | None:
        """Return `[d]` the sum of all contributions without computing each; None unless all accept.

        For a simulation with central noise, whose distribution is that of the sum. Σ is rounded to
        the grid once, instead of each contribution.
        """
        if not isinstance(self.algorithm, DirectlySummable) or self.find_refusals(plan):
            return None
        self.randomness.check(seeded=plan.seeded)
        values = self.algorithm.compute_sum(state, self.block, plan, self.randomness)
        if values is None:
            return None
        self.charge(plan, slice(None))
        encoding = replace(plan.encoding, bound=plan.encoding.bound * plan.parties)
        total: Ring = encoding.encode(values[None])[0]
        return total

    def charge(self, plan: ReleasePlan, parties: NDArray[np.int64] | slice) -> None:
        """Count this release for the parties that compute for it, once for all of its requests."""
        if plan.round_number != self._round:
            self._round = plan.round_number
            self._charged[:] = False
        self.answered_releases[parties] += ~self._charged[parties]
        self._charged[parties] = True

    def _get_partial_release(self, plan: ReleasePlan, without_noise: bool) -> _PartialRelease:
        """Return the previous answers to a round with noise in shares; otherwise empty ones."""
        partial = self._partial
        plan_key = plan, without_noise
        if partial is None or plan.shared_guarantee is None or partial.plan_key != plan_key:
            self._partial = None  # free the previous release before allocating the next
            shape = (self.block.parties, plan.dimension)
            partial = self._partial = _PartialRelease(
                plan_key=plan_key,
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
    ) -> Ring:
        """Return these parties' values as ring elements, with noise shares if the plan has any."""
        if plan.shared_guarantee is None or without_noise:
            return plan.encoding.encode(values)
        number, step = plan.round_number, plan.step
        if self.randomness.seeded:  # one stream per party, as each would draw by itself
            places = self.block.get_positions()[parties].tolist()
            streams = [self.randomness.open_noise_share(number, place, step) for place in places]
        else:
            streams = [self.randomness.open_noise_share(number)] * len(parties)
        return plan.encode(values, streams)

    def compute_weights(self, plan: ReleasePlan) -> NDArray[np.float64]:
        """Return `[B]` public weights."""
        if plan.weights == "size":
            return self.block.sizes / plan.mean_records
        return np.ones(self.block.parties)

    def find_refusals(
        self, plan: ReleasePlan, declining: NDArray[np.int64] | None = None
    ) -> dict[int, str]:
        """Return party → why it refuses: by the plan and public facts, or as one of `declining`."""
        refusals = self.rules.find_refusals(plan, self.block.sizes)
        if declining is not None:
            refusals |= dict.fromkeys(declining.tolist(), "declined")
        return refusals
