"""The parties as a session of queries sees them: a planned batch in, one ring sum out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parley.server.planning.queries import PlannedBatch


@dataclass(frozen=True, kw_only=True)
class QuerySum:
    """What a batch's secure sum gives.

    Attributes:
        total: `[d]` ring elements: the sum over the survivors.
        survivors: how many parties are in it.
        records: N of the survivors, where sizes are public.
        present: the survivors.
        bytes_up, bytes_down: all parties' traffic.
    """

    total: NDArray[np.unsignedinteger[Any]]
    survivors: int
    records: int | None
    present: tuple[int, ...]
    bytes_up: int
    bytes_down: int


class QueryCohort(Protocol):
    """The parties of a session.

    Attributes:
        most_rounds: sums that a batch may take.
        trusting: whether the server may see a bare sum: in a simulation alone.
    """

    @property
    def trusting(self) -> bool: ...  # noqa: D102 - above

    @property
    def most_rounds(self) -> int: ...  # noqa: D102 - above

    def ask(
        self, planned: PlannedBatch, state: dict[str, NDArray[np.float64]], *, attempt: int
    ) -> QuerySum:
        """One batch's sum.

        Raises:
            TooFewSurvivors: fewer contributions than the plan's least number; nothing was opened.
            PartyFailed: a party computed nothing that it may release; nothing was opened.
        """

    def close(self) -> None:
        """The session is over."""
