"""The masked protocol beside the ideal sum, for a few parties of a simulation.

The ideal functionality gives what masking would (`parley.secure_agg.ideal`); that it does is
checked once a run, on the real contributions of a cohort drawn at random. All parties would take
minutes of keys
and masks where they are many, and tell no more: whatever could differ differs among a few, too.

    >>> checked_parties(parties=10_000, dimension=100), checked_parties(parties=5, dimension=10**6)
    (64, 5)
    >>> checked_parties(parties=10_000, dimension=10**6)
    16
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import DropStage, SecureSum, TooFewSurvivors

MOST_PARTIES = 64
_LEAST_PARTIES = 8
_MOST_WORDS = 2**28
"""Words of mask, parties² · d of them: a second or so."""


class MaskedCheckFailed(Exception):
    """The masked protocol gave another sum than the ideal one: a bug, and the run stops."""


def checked_parties(*, parties: int, dimension: int) -> int:
    """How many of the parties a check takes."""
    affordable = max(math.isqrt(_MOST_WORDS // dimension), _LEAST_PARTIES)
    return min(parties, MOST_PARTIES, affordable)


@dataclass(frozen=True, kw_only=True)
class MaskedCheck:
    """Two sums over the same few parties.

    Attributes:
        chosen: `[k]` their indices, in order.
        masked: the protocol, of k parties.
        ideal: what it is compared with, of the same parameters.
    """

    chosen: NDArray[np.int64]
    masked: SecureSum
    ideal: SecureSum

    def run(
        self,
        own: NDArray[np.unsignedinteger[Any]],
        *,
        parties: int,
        round_number: int,
        serial: int,
        dropped: Mapping[int, DropStage],
    ) -> str | None:
        """What to say of the check; None where too few of the chosen parties survived for one.

        Args:
            own: `[k, d]` the chosen parties' contributions.
            serial: number that masks are bound to.

        Raises:
            MaskedCheckFailed: sums or survivors differ.
        """
        lost = {at: dropped[int(p)] for at, p in enumerate(self.chosen) if int(p) in dropped}
        try:
            ideal = self.ideal.sum(own, round_number=serial, dropped=lost)
        except TooFewSurvivors:
            return None
        masked = self.masked.sum(own, round_number=serial, dropped=lost)
        if not np.array_equal(masked.total, ideal.total) or masked.survivors != ideal.survivors:
            raise MaskedCheckFailed(
                f"The masked protocol's sum of round {round_number} differs from the ideal one, "
                f"for parties {self.chosen.tolist()}. This is a bug; nothing was released."
            )
        whom = (
            f"of {len(self.chosen)} parties drawn at random from {parties} "
            if len(self.chosen) < parties
            else ""
        )
        return (
            f"round {round_number}: {len(masked.survivors)} contributions {whom}summed by the "
            "masked protocol, identical to the last bit"
        )
