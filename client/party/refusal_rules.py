"""`RefusalRules`: refusals of a block of parties, decided only by a plan and public facts.

They change no number of a release, so no ε rests on them. No ε is compared here: a ledger charges
every release before a party computes for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.threat_model import Neighbouring, Unit


@dataclass(frozen=True, kw_only=True)
class RefusalRules:
    """A party's conditions, fixed by its owner.

    Attributes:
        units: those that the party has a budget for.
    """

    units: frozenset[Unit]
    min_survivors: int = 1
    neighbouring: frozenset[Neighbouring] = frozenset({Neighbouring.REPLACE_ONE})

    def find_refusals(self, plan: ReleasePlan, sizes: NDArray[np.int64]) -> dict[int, str]:
        """Return party → why it refuses.

        Args:
            sizes: `[B]` records of each party.
        """
        primary, reason = plan.primary, ""
        if primary.unit not in self.units or primary.neighbouring not in self.neighbouring:
            reason = f"unit {primary.unit} with {primary.neighbouring} neighbours is not accepted"
        elif not self.units >= set(plan.units):
            reason = "a budget for the whole party is not accepted"
        elif plan.min_survivors < self.min_survivors:
            reason = f"cohort of {plan.min_survivors} is below the minimum, {self.min_survivors}"
        if reason:
            return dict.fromkeys(range(len(sizes)), reason)
        if plan.private_sizes:
            return {}
        small = np.flatnonzero(sizes < plan.min_records).tolist()
        return dict.fromkeys(small, f"fewer than {plan.min_records} records")
