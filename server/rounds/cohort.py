"""Define the parties as the server sees them: a plan in, one ring sum out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan


class PartyFailed(Exception):
    """A simulated party's computation is not certified, so that no contribution was unmasked.

    Without this error, one record could decide whether a whole contribution is in the sum. Real
    parties never report it: they answer with whatever result they have
    (`parley.client.party.round_contribution`).
    """


@dataclass(frozen=True, kw_only=True)
class RoundSum:
    """The result of one secure sum at the server.

    Attributes:
        total: `[d]` ring elements: the sum over the survivors.
        survivors: the parties in it, ascending.
        weight: Σ of their public weights.
        asked, answered, declined, dropped: numbers of parties; asked is the sum of the others. A
            dropped party's vector may be in the sum (it was lost after sending it).
        reasons: reason class → number of parties that declined for it.
        stage_seconds: seconds of each stage, if parties are real.
    """

    total: NDArray[np.unsignedinteger[Any]]
    survivors: tuple[int, ...]
    weight: float
    asked: int
    answered: int
    declined: int
    dropped: int
    reasons: dict[str, int]
    bytes_up: int
    bytes_down: int
    stages: int
    stage_seconds: tuple[float, ...] = ()
    absent: tuple[str, ...] | None = None

    @classmethod
    def combine(cls, sums: Sequence[RoundSum]) -> RoundSum:
        """Combine the secure sums of one release: their traffic, and the parties of the smallest
        sum.
        """
        least = min(sums, key=lambda each: len(each.survivors))
        return replace(
            least,
            bytes_up=sum(each.bytes_up for each in sums),
            bytes_down=sum(each.bytes_down for each in sums),
            stages=sum(each.stages for each in sums),
            stage_seconds=tuple(second for each in sums for second in each.stage_seconds),
        )

    def count_parties(self) -> dict[str, int]:
        """Return the numbers of parties, for a release's record."""
        return {
            "asked": self.asked,
            "answered": self.answered,
            "declined": self.declined,
            "dropped": self.dropped,
            "summed": len(self.survivors),
        }


class Cohort(Protocol):
    """The parties of a release."""

    def aggregate(self, plan: ReleasePlan, state: State, *, attempt: int) -> RoundSum:
        """Return one secure sum.

        Raises:
            TooFewSurvivors: fewer than the plan's minimum number of contributions; nothing was
                unmasked.
            PartyFailed: in a simulation, a computation is not certified; nothing was unmasked.
        """
