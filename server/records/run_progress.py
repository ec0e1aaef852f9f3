"""Define how far a run is, or how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from parley.client.contract.model_state_encoding import State
from parley.server.records.round_totals import RoundTotals


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """How far a run is, or how it ended.

    Attributes:
        status: `complete`, `budget-exhausted`, `too-few-survivors` or `party-failed`;
            `interrupted` until the stage ends.
        reason: why it ended early; else empty.
        done: number of committed releases of that stage; rounds, in the last one.
        state: after them; empty before the first release.
        totals: what the summary needs of the rounds so far.
        ahead: name of a stage ahead of the rounds → parties and traffic of its last release.
    """

    status: str = "interrupted"
    reason: str = ""
    stage: int = 0
    done: int
    state: State
    totals: RoundTotals
    ahead: dict[str, dict[str, Any]] = field(default_factory=dict)
