"""The parties as the server sees them: a plan in, one ring sum out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state import State
from parley.client.contract.release_plan import ReleasePlan


class PartyFailed(Exception):
    """A simulated party's computation is not certified, so nobody's contribution was opened.

    Going on without it would let one record decide whether a whole contribution is in the sum. Real
    parties never say so: they answer whatever came of it
    (`parley.client.party.round_contribution`).
    """


@dataclass(frozen=True, kw_only=True)
class RoundSum:
    """What one secure sum gives the server.

    Attributes:
        total: `[d]` ring elements: the sum over the survivors.
        survivors: the parties in it, ascending.
        weight: Σ of their public weights.
        asked, answered, declined, dropped: numbers of parties; asked is the sum of the others.
            A dropped party's vector may be in the sum (it was lost after sending it).
        reasons: reason class → how many parties declined for it.
        stage_seconds: of each of them, where they are real.
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
        """What the secure sums of one release come to: their traffic, and the parties of the one
        that fewest were in."""
        least = min(sums, key=lambda each: len(each.survivors))
        return replace(
            least,
            bytes_up=sum(each.bytes_up for each in sums),
            bytes_down=sum(each.bytes_down for each in sums),
            stages=sum(each.stages for each in sums),
            stage_seconds=tuple(second for each in sums for second in each.stage_seconds),
        )

    def count_parties(self) -> dict[str, int]:
        """Numbers of parties, as a release's record has them."""
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
        """One secure sum.

        Raises:
            TooFewSurvivors: fewer than the plan's least number of contributions; nothing opened.
            PartyFailed: of a simulation: a computation is not certified; nothing opened.
        """
