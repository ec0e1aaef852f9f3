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
from parley.server.jobs.job import Job
from parley.server.planning.release import account
from parley.server.rounds.loop import Progress

__all__ = ["record_bounds", "two_units_facts"]


def two_units_facts(job: Job, plan: ReleasePlan, progress: Progress) -> dict[str, Any]:
    """Both parts of the summary; empty for a plan with one guarantee."""
    party, budget = plan.party_level, job.party_budget
    if party is None or budget is None:
        return {}
    spent = account(progress.party_spent, party.delta)
    grid_units = 2.0**plan.encoding.scale_bits
    scale, norm = party.mechanism.scale, party.mechanism.expected_norm()
    return {
        "party_level": {
            "unit": str(party.unit),
            "neighbouring": str(party.neighbouring),
            "epsilon": spent["epsilon_charged"],
            "delta": party.delta,
            "epsilon_budget": budget[0],
            "delta_budget": budget[1],
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
                "point": "server",
            },
        },
        "record_bounds": record_bounds(plan, rounds=progress.done),
    }


def record_bounds(plan: ReleasePlan, *, rounds: int) -> dict[str, Any]:
    """ε of one record by the DP-SGD in its party (inner) and by the noise on the sum (outer)."""
    party = plan.party_level
    if party is None:
        raise ValueError("Expected a plan with a party-level guarantee, got one without.")
    bounds: dict[str, Any] = {"charged": "outer" if party.covers_records else "inner"}
    for name, event in (("inner", plan.mechanism.event()), ("outer", party.event)):
        conversion, epsilon = Composition.empty().add(event, count=rounds).epsilon(plan.delta)
        bounds[name] = {"epsilon": epsilon, "conversion": conversion}
    return bounds
