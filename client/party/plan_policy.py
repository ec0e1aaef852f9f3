"""`RefusalRules`: refusals of a block of parties, decided only by a plan and public facts.

They change no number of a release, so no ε rests on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.largest_count import find_largest_count
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.threat_model import Neighbouring, Unit

_MAX_RELEASES = 2**40
"""More releases than any run makes."""


@dataclass(frozen=True, kw_only=True)
class RefusalRules:
    """A party's conditions, fixed by its owner.

    Attributes:
        budgets: largest ε that this job may spend on each accepted unit, and the δ at which it is
            counted. ε is infinite if a ledger of the party charges every release.
    """

    budgets: Mapping[Unit, tuple[float, float]]
    min_survivors: int = 1
    neighbouring: frozenset[Neighbouring] = frozenset({Neighbouring.REPLACE_ONE})

    def find_refusals(
        self,
        plan: ReleasePlan,
        sizes: NDArray[np.int64],
        *,
        answered: NDArray[np.int64],
        spent: Composition,
    ) -> dict[int, str]:
        """Return party → why it refuses.

        Args:
            sizes: `[B]` records of each party.
            answered: `[B]` releases under such a plan that each party has paid for.
            spent: the charges of the plan's primary unit before the first of them.
        """
        primary, reason = plan.primary, ""
        if primary.unit not in self.budgets or primary.neighbouring not in self.neighbouring:
            reason = f"unit {primary.unit} with {primary.neighbouring} neighbours is not accepted"
        elif not self.budgets.keys() >= set(plan.units):
            reason = "a budget for the whole party is not accepted"
        elif plan.min_survivors < self.min_survivors:
            reason = f"cohort of {plan.min_survivors} is below the minimum, {self.min_survivors}"
        if reason:
            return dict.fromkeys(range(len(sizes)), reason)
        refusals: dict[int, str] = {}
        if not plan.private_sizes:
            for party in np.flatnonzero(sizes < plan.min_records):
                refusals[int(party)] = f"fewer than {plan.min_records} records"
        for party in np.flatnonzero(answered >= self._count_affordable(plan, spent)):
            refusals.setdefault(int(party), "budget exhausted")
        return refusals

    def _count_affordable(self, plan: ReleasePlan, spent: Composition) -> int:
        """Return how many releases like this one the budgets pay for."""
        counts = [_MAX_RELEASES]
        for unit in plan.units:
            before = spent if unit is plan.primary.unit else Composition.create_empty()
            counts.append(
                _count_affordable_events(before, plan.compute_event(unit), *self.budgets[unit])
            )
        return min(counts)


@lru_cache(maxsize=64)  # a run has the same arguments in every round
def _count_affordable_events(
    before: Composition, event: PrivacyEvent, epsilon: float, delta: float
) -> int:
    """Return the largest number of `event`s after `before` within (ε, δ)."""
    if math.isinf(epsilon):  # a ledger holds the budget
        return _MAX_RELEASES

    def fits(count: int) -> bool:
        return before.add(event, count=count).compute_lowest_epsilon(delta)[1] <= epsilon * (
            1 + 1e-9
        )

    return find_largest_count(fits, maximum=_MAX_RELEASES)
