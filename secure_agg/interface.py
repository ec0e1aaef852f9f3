"""What a caller of secure aggregation sees: vectors in, one sum out, or nothing.

Two implementations: `ideal_sum.IdealSum` computes only what changes the result (ring sum over the
survivors, thresholds, byte accounting); `masked.MaskedSum` runs the protocol in full. For the same
vectors and drops both give the same bits, the same survivors and the same refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from parley.secure_agg.encoding import Ring


class DropStage(StrEnum):
    """When a party falls silent in a round."""

    BEFORE_VECTOR = "before-vector"
    """Its vector never arrives; it is not in the sum."""
    AFTER_VECTOR = "after-vector"
    """Its vector arrived, so it is in the sum; it does not confirm the survivors' list."""
    BEFORE_UNMASK = "before-unmask"
    """It confirmed the survivors' list but reveals nothing; it is in the sum."""


class ProtocolError(Exception):
    """A message or a call that the protocol does not allow. Never carries a secret."""


class LocalProtocolError(ProtocolError):
    """Our side called out of order, or with what must not be sent."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol: forged, malformed, replayed, or unsafe to answer."""


class TooFewSurvivors(Exception):
    """Below a threshold: the round ends, and nothing about any vector is revealed."""


@dataclass(frozen=True, kw_only=True)
class SumResult:
    """One round's outcome.

    Attributes:
        total: `[d]` ring elements, Σ of the survivors' vectors mod 2^b.
        survivors: party indices in the sum, ascending.
        stages: sequential exchanges that the round took.
    """

    total: Ring
    survivors: tuple[int, ...]
    bytes_up: int
    bytes_down: int
    stages: int


class SecureSum(Protocol):
    """Sums the vectors of B parties so that only the sum is learned."""

    @property
    def name(self) -> Literal["ideal", "masked"]:
        """Which one this is; the report says it."""
        ...

    def sum(
        self, vectors: Ring, *, round_number: int, dropped: Mapping[int, DropStage]
    ) -> SumResult:
        """Sum over the survivors.

        Args:
            vectors: `[B, d]` ring elements, one row a party (a dropped party's row is not read
                when it drops before its vector).
            round_number: from 1, strictly increasing.
            dropped: party index to the stage at which it falls silent in this round.

        Raises:
            TooFewSurvivors: a threshold is not reached; nothing is revealed.
            LocalProtocolError: a round number not above the last one, or bad arguments.
        """
        ...
