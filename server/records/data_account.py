"""What a data set's budget is, what all runs spent of it, and what is left."""

from __future__ import annotations

from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.server.records.facts import Facts, Figure


class DataAccount(Facts):
    """One budget (ε, δ) of a data set, for one unit, as a ledger has it.

    Attributes:
        spent: ε of all releases of all runs on the data, at δ; None where none is proved finite.
        held: releases to come of runs that are not over.
        left: ε at δ that nobody holds, by basic composition.
        jobs: how many more jobs of this kind fit, at most 1000.
    """

    name: str
    unit: Unit
    neighbouring: Neighbouring
    epsilon: float
    delta: float
    spent: Figure
    releases: int
    held: int
    left: float
    jobs: int
