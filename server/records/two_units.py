"""What a run with two guarantees came to: the party's account, and both bounds of a record's.

`party_level` and `record_bounds` of `summary.json`. The record's ε is the lower of two bounds
proved for the released models (privacy.md, section 4); the other is told beside it, with whom it
holds against: the DP-SGD in a party also holds against the server, which sees the sum before its
own noise.
"""

from __future__ import annotations

from typing import Any

from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Unit
from parley.server.jobs.job import Job
from parley.server.planning.release import account
from parley.server.records.progress import Progress

__all__ = ["record_bounds", "two_units_facts"]


def two_units_facts(job: Job, plan: ReleasePlan, progress: Progress) -> dict[str, Any]:
    """Both parts of the summary; empty for a plan with one guarantee."""
    party, budget = plan.of(Unit.PARTY), job.budget(Unit.PARTY)
    if party is None or budget is None or party is plan.primary:
        return {}
    spent = account(progress.spent[party.unit], party.delta)
    grid_units = 2.0**plan.encoding.scale_bits
    scale, norm = party.mechanism.scale, party.mechanism.expected_norm()
    return {
        "party_level": {
            "unit": str(party.unit),
            "neighbouring": str(party.neighbouring),
            "epsilon": spent["epsilon_charged"],
            "delta": party.delta,
            "epsilon_budget": budget.epsilon,
            "delta_budget": budget.delta,
            "rho": spent["rho"],
            "epsilon_by_conversion": spent["epsilon"],
            "conversion": spent["conversion"],
            "clip_norm": party.clip_norm,
            "noise": {
                "law": party.mechanism.law,
                "scale": scale / grid_units / plan.parties,
                "scale_of_sum": scale / grid_units,
                "expected_norm": norm / grid_units / plan.parties,
                "sensitivity": party.mechanism.sensitivity / grid_units / plan.parties,
                "point": str(party.noise_point),
            },
        },
        "record_bounds": record_bounds(plan, rounds=progress.done),
    }


def record_bounds(plan: ReleasePlan, *, rounds: int) -> dict[str, Any]:
    """ε of one record by the DP-SGD in its party (inner) and by the noise on the sum (outer)."""
    inner, outer = plan.guarantees
    charged = plan.charged_by(inner.unit)
    bounds: dict[str, Any] = {"charged": "inner" if charged is inner else "outer"}
    for name, each in (("inner", inner), ("outer", outer)):
        spent = Composition.empty().add(each.event, count=rounds)
        conversion, epsilon = spent.epsilon(inner.delta)
        bounds[name] = {"epsilon": epsilon, "conversion": conversion}
    return bounds
