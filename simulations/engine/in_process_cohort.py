"""Define the fast engine's cohort: every party in one block, in this process.

`MaskedCheck` compares the masked protocol with the ideal sum for a few parties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.party.party_session import PartySession
from parley.secure_agg.ideal_sum import IdealSum
from parley.secure_agg.interface import DropStage, SecureSum, SumResult, TooFewSurvivors
from parley.server.rounds.cohort import PartyFailed, RoundSum
from parley.server.rounds.round_release import MAX_ATTEMPTS
from parley.simulations.engine.fault_script import FaultScript
from parley.simulations.engine.streamed_sum import Ring, SumFunction, SumRequest, sum_parties

MAX_CHECKED_PARTIES = 64
_LEAST_PARTIES = 8
_MOST_WORDS = 2**28
"""Maximum number of mask words, parties² · d: about a second."""


class MaskedCheckFailed(Exception):
    """The masked protocol and the ideal sum differ: a bug, and the run stops."""


def count_checked_parties(*, parties: int, dimension: int) -> int:
    """Return the number of parties in a check."""
    affordable = max(math.isqrt(_MOST_WORDS // dimension), _LEAST_PARTIES)
    return min(parties, MAX_CHECKED_PARTIES, affordable)


@dataclass(frozen=True, kw_only=True)
class MaskedCheck:
    """Two sums over the same few parties.

    Attributes:
        chosen: `[k]` their indices, in order.
        masked: the protocol, of k parties.
        ideal: the sum it is compared with, with the same parameters.
    """

    chosen: NDArray[np.int64]
    masked: SecureSum
    ideal: SecureSum

    def run(
        self,
        contributions: NDArray[np.unsignedinteger[Any]],
        *,
        parties: int,
        round_number: int,
        serial: int,
        dropped: Mapping[int, DropStage],
    ) -> str | None:
        """Return a description of the check; None if too few of the chosen parties survived.

        Args:
            contributions: `[k, d]` the chosen parties' contributions.
            serial: number that masks are bound to.

        Raises:
            MaskedCheckFailed: sums or survivors differ.
        """
        lost = {at: dropped[int(p)] for at, p in enumerate(self.chosen) if int(p) in dropped}
        try:
            ideal = self.ideal.sum(contributions, round_number=serial, dropped=lost)
        except TooFewSurvivors:
            return None
        masked = self.masked.sum(contributions, round_number=serial, dropped=lost)
        if not np.array_equal(masked.total, ideal.total) or masked.survivors != ideal.survivors:
            raise MaskedCheckFailed(
                f"The masked protocol's sum of round {round_number} differs from the ideal one, "
                f"for parties {self.chosen.tolist()}. This is a bug; nothing was released."
            )
        whom = ""
        if len(self.chosen) < parties:
            whom = f"of {len(self.chosen)} parties drawn at random from {parties} "
        return (
            f"round {round_number}: {len(masked.survivors)} contributions {whom}summed by the "
            "masked protocol, identical to the last bit"
        )


_NOBODY = np.empty(0, dtype=np.int64)


@dataclass(kw_only=True)
class BlockCohort:
    """All parties of a simulation behind one secure sum.

    Attributes:
        central_noise: shares of noise are drawn as one draw of their sum, after a sum that is
            checked: the distribution of r shares replaces their draws.
        unchecked: no sum is compared with the masked protocol's, so that the first has central
            noise too.
    """

    session: PartySession
    secure_sum: SecureSum
    faults: FaultScript
    central_noise: bool = False
    unchecked: bool = False
    check: MaskedCheck | None = None
    sum_function: SumFunction = sum_parties
    checked: str = field(default="", init=False)

    def aggregate(self, plan: ReleasePlan, state: State, *, attempt: int) -> RoundSum:
        """Return one release's sum; see `parley.server.rounds.cohort.Cohort`.

        Raises:
            MaskedCheckFailed: the masked protocol's sum differs.
        """
        parties = self.session.block.parties
        # Counted per sum, because a release may have several.
        tried = (plan.step - 1) * MAX_ATTEMPTS + attempt
        number = plan.round_number
        faults = self.faults.sample_faults(round_number=number, attempt=tried, parties=parties)
        dealer = self._find_central_plan(plan)
        given_by, dealt = dealer or plan, dealer is not None
        # Masks are bound to this serial number: no two attempts ever share a key.
        serial = plan.sum_number * MAX_ATTEMPTS + attempt + 1
        everyone = not faults.dropped and not len(faults.declined)
        if self.sum_function is sum_parties and dealt and everyone:
            whole = self.session.compute_sum(given_by, state)
            if whole is not None and isinstance(self.secure_sum, IdealSum):
                result = self.secure_sum.build_full_result(whole, round_number=serial)
                return self._build_round_sum(plan, result, central_noise=True)
        refused = self.session.find_refusals(plan, faults.declined)
        absent = dict.fromkeys(refused, DropStage.BEFORE_VECTOR)
        dropped = {p: stage for p, stage in faults.dropped.items() if p not in absent}
        lost = absent | dropped
        if isinstance(ideal := self.secure_sum, IdealSum):
            asked = SumRequest(
                plan=given_by,
                state=state,
                refused=refused,
                absent=[p for p, stage in lost.items() if stage is DropStage.BEFORE_VECTOR],
                dealt=dealt,
                kept=_NOBODY if self.check is None else self.check.chosen,
            )
            given = self.sum_function(self.session, asked)
            _check_none(given.failed)
            result = ideal.simulate_round(plan.dimension, round_number=serial, dropped=lost)
            result = replace(result, total=given.total)
            self._compare(plan, given.kept.astype(plan.encoding.dtype), serial, lost)
        else:
            answer = self.session.answer(
                given_by, state, declining=faults.declined, without_noise=dealt
            )
            _check_none(answer.failed)
            result = self.secure_sum.sum(answer.encoded, round_number=serial, dropped=lost)
        return self._build_round_sum(
            plan, result, central_noise=dealt, refused=refused, dropped=len(dropped)
        )

    def _compare(
        self, plan: ReleasePlan, kept: Ring, serial: int, lost: Mapping[int, DropStage]
    ) -> None:
        """Compare the checked contributions with the masked protocol, until one check succeeds."""
        if self.check is None:
            return
        said = self.check.run(
            kept, parties=plan.parties, round_number=plan.round_number, serial=serial, dropped=lost
        )
        if said is not None:
            self.checked, self.check = said, None

    def _build_round_sum(
        self,
        plan: ReleasePlan,
        result: SumResult,
        *,
        central_noise: bool,
        refused: Mapping[int, str] = MappingProxyType({}),
        dropped: int = 0,
    ) -> RoundSum:
        """Return the sum with central noise, and the counts of parties."""
        total = result.total
        if central_noise:
            stream = self.session.randomness.open_summed_shares(plan.round_number, plan.step)
            total = plan.add_central_noise(len(result.survivors), stream, total)
        parties = self.session.block.parties
        return RoundSum(
            total=total,
            survivors=result.survivors,
            weight=float(self.session.compute_weights(plan)[list(result.survivors)].sum()),
            asked=parties,
            answered=parties - len(refused) - dropped,
            declined=len(refused),
            dropped=dropped,
            reasons=dict(Counter(refused.values())),
            bytes_up=result.bytes_up,
            bytes_down=result.bytes_down,
            stages=result.stages,
        )

    def _find_central_plan(self, plan: ReleasePlan) -> ReleasePlan | None:
        """Return the plan for central noise, or None: a sum that is checked is drawn in full."""
        due = self.unchecked or plan.sum_number > 1
        return plan.central_noise_plan if self.central_noise and due else None


def _check_none(failed: Collection[int]) -> None:
    if failed:
        raise PartyFailed(
            "A party could not certify its local optimum: the release is abandoned, nothing was "
            "unmasked, and its charge stays. A larger model.lambda or "
            "algorithm.relative-tolerance makes certification easier."
        )
