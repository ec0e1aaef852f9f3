"""Interface of secure aggregation: callers pass vectors and get one sum, or no result.

There are two implementations. `ideal_sum.IdealSum` computes only what changes the result: ring sum
over the survivors, thresholds, byte accounting. `in_process_protocol.MaskedSum` runs the full
protocol. For the same vectors and drops both return the same bits, survivors and refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from parley.secure_agg.encoding import Ring


class DropStage(StrEnum):
    """Stage of a round at which a party falls silent."""

    BEFORE_VECTOR = "before-vector"
    """The party's vector never arrives; it is not in the sum."""
    AFTER_VECTOR = "after-vector"
    """The party's vector arrived, so it is in the sum; the party does not confirm the survivors'
    list.
    """
    BEFORE_UNMASK = "before-unmask"
    """The party confirmed the survivors' list but reveals no secret; its vector is in the sum."""


class ProtocolError(Exception):
    """The protocol does not allow a message or a call. The error never contains a secret."""


class LocalProtocolError(ProtocolError):
    """Our side made a call out of order, or with arguments that must not be sent."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol: forged, malformed, replayed, or unsafe to answer."""


class TooFewSurvivors(Exception):
    """A threshold is not reached: the round ends, and no vector is revealed."""


@dataclass(frozen=True, kw_only=True)
class SumResult:
    """Outcome of one round.

    Attributes:
        total: `[d]` ring elements, Σ of the survivors' vectors mod 2^b.
        survivors: indices of the parties in the sum, ascending.
        bytes_up: bytes sent by the parties.
        bytes_down: bytes sent by the server.
        stages: sequential exchanges in the round.
    """

    total: Ring
    survivors: tuple[int, ...]
    bytes_up: int
    bytes_down: int
    stages: int


class SecureSum(Protocol):
    """Sum of the vectors of B parties, of which only the sum is learned."""

    @property
    def name(self) -> Literal["ideal", "masked"]:
        """Name of the implementation, printed in the report."""
        ...

    def sum(
        self, vectors: Ring, *, round_number: int, dropped: Mapping[int, DropStage]
    ) -> SumResult:
        """Return the sum over the survivors.

        Args:
            vectors: `[B, d]` ring elements, one row per party. The row of a party that drops before
                its vector is not read.
            round_number: from 1, strictly increasing.
            dropped: party index to the stage at which the party falls silent in this round.

        Raises:
            TooFewSurvivors: a threshold is not reached; no vector is revealed.
            LocalProtocolError: a round number not above the last one, or bad arguments.
        """
        ...
