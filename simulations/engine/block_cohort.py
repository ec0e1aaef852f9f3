"""The fast engine's cohort: every party in one block, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import State
from parley.client.contract.plan import ReleasePlan
from parley.client.party.block_session import PartySession
from parley.secure_agg.interface import DropStage, SecureSum
from parley.server.rounds.cohort import PartyFailed, RoundSum
from parley.server.rounds.loop import ATTEMPTS
from parley.simulations.engine.faults import FaultScript
from parley.simulations.engine.masked_check import MaskedCheck

__all__ = ["BlockCohort"]

Evaluate = Callable[[NDArray[np.float64], int], dict[str, Any]]


@dataclass(kw_only=True)
class BlockCohort:
    """All parties of a simulation behind one secure sum.

    Attributes:
        session: the parties.
        secure_sum: how their contributions are summed.
        faults: who drops out or declines, when.
        evaluate_model: simulation-only figures of a model after a round.
        check: the masked protocol, to compare the first sum of a few parties with; None for none.
        checked: what the check found, once it ran.
    """

    session: PartySession
    secure_sum: SecureSum
    faults: FaultScript
    evaluate_model: Evaluate
    check: MaskedCheck | None = None
    checked: str = field(default="", init=False)

    def aggregate(self, plan: ReleasePlan, state: State, *, attempt: int) -> RoundSum:
        """One release's sum; see `parley.server.rounds.cohort.Cohort`.

        Raises:
            TooFewSurvivors: fewer contributions than the plan's least number.
            PartyFailed: a party has nothing it may release.
            MaskedCheckFailed: the masked protocol's sum differs.
        """
        parties = self.session.block.parties
        faults = self.faults.at(round_number=plan.round_number, attempt=attempt, parties=parties)
        answer = self.session.answer(plan, state, declining=faults.declined)
        if answer.failed:
            raise PartyFailed(
                "A party could not certify its local optimum: the release is given up, nothing "
                "was opened, and its charge stands. A larger model.lambda or "
                "algorithm.relative-tolerance makes certification easier."
            )
        absent = dict.fromkeys(answer.refused, DropStage.BEFORE_VECTOR)
        dropped = {p: stage for p, stage in faults.dropped.items() if p not in absent}
        # Masks are bound to this serial number: no two attempts ever share a key.
        serial = plan.round_number * ATTEMPTS + attempt + 1
        everyone_lost = absent | dropped
        result = self.secure_sum.sum(answer.encoded, round_number=serial, dropped=everyone_lost)
        if self.check is not None:
            said = self.check.run(
                answer.encoded,
                round_number=plan.round_number,
                serial=serial,
                dropped=everyone_lost,
            )
            if said is not None:
                self.checked, self.check = said, None
        survivors = np.asarray(result.survivors, dtype=np.int64)
        return RoundSum(
            total=result.total,
            weight=float(answer.weights[survivors].sum()),
            asked=parties,
            answered=parties - len(answer.refused) - len(dropped),
            declined=len(answer.refused),
            dropped=len(dropped),
            summed=len(survivors),
            reasons=dict(Counter(answer.refused.values())),
            bytes_up=result.bytes_up,
            bytes_down=result.bytes_down,
            stages=result.stages,
        )

    def evaluate(self, theta: NDArray[np.float64], *, round_number: int) -> dict[str, Any]:
        """Simulation-only figures."""
        return self.evaluate_model(theta, round_number)
