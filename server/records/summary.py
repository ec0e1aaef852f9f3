"""What a run comes to, as far as its server knows: the facts of `summary.json`.

Nothing here looks at a record. A simulation adds what only a simulation may know.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm, State
from parley.client.contract.plan import ReleasePlan
from parley.server.jobs.job import Job
from parley.server.planning.release import account, averaged
from parley.server.records.clipped_fraction import clipped_facts
from parley.server.records.progress import Outcome
from parley.server.records.run_folder import RunFolder
from parley.server.records.two_units import two_units_facts

__all__ = ["model_tensors", "privacy_statement", "run_summary"]

_UNKNOWN = (
    "loss",
    "baseline_loss",
    "excess_loss",
    "accuracy",
    "baseline_accuracy",
    "majority_accuracy",
)
"""Figures that would each be a release of its own."""


def run_summary(
    *,
    job: Job,
    plan: ReleasePlan,
    outcome: Outcome,
    secure_sum: dict[str, Any],
    folder: RunFolder,
    ledger_head: dict[str, Any],
    version: str,
    seconds: float,
    engine: str,
    components: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The summary of a run that ended, complete or not.

    ε and δ are what was spent, by the lowest proved conversion. Figures that would be releases are
    None.

    Args:
        components: parties and traffic of the private components' release, if there was one.
    """
    progress = outcome.progress
    spent = account(progress.spent[plan.primary.unit], plan.primary.delta)
    noise = averaged(job, plan)
    seconds_by_round = [line["seconds"] for line in progress.lines]
    summary: dict[str, Any] = {
        "run_dir": str(folder.path),
        "run_id": folder.run_id,
        "ledger": job.privacy.ledger,
        "ledger_head": ledger_head,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "parley_version": version,
        "engine": engine,
        "status": outcome.status,
        "reason": outcome.reason,
        "algorithm": plan.algorithm,
        "model": job.model.kind,
        "metric": "r2" if job.model.kind == "ridge" else "accuracy",
        "data": job.data.source,
        "parties": plan.parties,
        "records_by_party": [],
        "min_records": plan.min_records,
        "dimension": plan.parameters,
        "rounds": job.rounds,
        "rounds_done": progress.done,
        "epsilon": spent["epsilon_charged"],
        "delta": plan.primary.delta,
        "epsilon_budget": job.privacy.epsilon,
        "delta_budget": job.privacy.delta,
        "rho": spent["rho"],
        "epsilon_by_conversion": spent["epsilon"],
        "conversion": spent["conversion"],
        "unit": str(plan.primary.unit),
        "neighbouring": str(plan.primary.neighbouring),
        "calibration": plan.primary.calibration,
        "noise": {
            "law": plan.primary.mechanism.law,
            "scale": noise.scale,
            "scale_of_sum": noise.scale
            * (plan.parties if plan.primary.noise_point == "server" else 1),
            "expected_norm": noise.expected_norm(),
            "sensitivity": noise.sensitivity,
            "point": str(plan.primary.noise_point),
            "seeded": job.seed is not None,
        },
        "secure_aggregation": {
            "ring_bits": plan.encoding.ring_bits,
            "scale_bits": plan.encoding.scale_bits,
            "inflation": plan.inflation,
            "min_survivors": plan.min_survivors,
            "bytes_up": sum(line["bytes_up"] for line in progress.lines),
            "bytes_down": sum(line["bytes_down"] for line in progress.lines),
            **secure_sum,
        },
        **dict.fromkeys(_UNKNOWN),
        "seconds": seconds,
        "seconds_per_round": float(np.median(seconds_by_round)) if seconds_by_round else None,
        "simulation_only": [],
        "advice": [],
    }
    if components:
        for way in ("bytes_up", "bytes_down"):
            summary["secure_aggregation"][way] += components.get(way, 0)
        summary["components"] = components
    return summary | two_units_facts(job, plan, progress) | clipped_facts(plan, progress)


def model_tensors(algorithm: FederatedAlgorithm, state: State) -> dict[str, NDArray[np.float64]]:
    """What `model.safetensors` holds: the model, and what its rows are projected on."""
    kept = {name: state[name] for name in ("components",) if name in state}
    return {"theta": algorithm.model_of(state), **kept}


def privacy_statement(summary: dict[str, Any]) -> dict[str, str]:
    """The metadata of `model.safetensors`: what was promised, as text."""
    noise, party = summary["noise"], summary.get("party_level")
    if noise["seeded"]:
        return {
            "parley.version": summary["parley_version"],
            "parley.run": summary["run_id"],
            "parley.epsilon": "none (seeded noise)",
            "parley.delta": "none (seeded noise)",
            "parley.unit": summary["unit"],
            "parley.neighbouring": summary["neighbouring"],
            **_party_budget(summary),
            "parley.statement": (
                "This model carries no privacy guarantee: its noise was drawn from a seed, to be "
                "repeatable. With noise from the operating system's entropy the same run would "
                f"cost epsilon {summary['epsilon']!r} at delta {summary['delta']!r}"
                + (
                    f" for one record, and epsilon {party['epsilon']!r} at delta "
                    f"{party['delta']!r} for everything one party holds."
                    if party
                    else "."
                )
            ),
        }
    where = (
        "on the sum of every batch's clipped gradients, drawn from the operating system's entropy "
        "in each party. "
        if noise["point"] == "party"
        else f"on the average over {summary['parties']} parties, drawn from the operating "
        "system's entropy and added by the server, which is trusted to add it. "
    )
    statement = (
        f"({summary['epsilon']!r}, {summary['delta']!r})-differential privacy of one "
        f"{summary['unit']}, {summary['neighbouring']} neighbours, over "
        f"{summary['rounds_done']} releases of this run; {noise['law']} noise of scale "
        f"{noise['scale']:.6g} {where}"
    )
    if summary.get("components"):
        statement += (
            "Before them, within the same bound, one release of the records' second moments "
            "(principal components), whose noise was added by the server, which is trusted to "
            "add it. "
        )
    if party is not None:
        statement += (
            f"And ({party['epsilon']!r}, {party['delta']!r})-differential privacy of everything "
            f"that one {party['unit']} holds, {party['neighbouring']} neighbours: updates are "
            f"clipped to L2 norm {party['clip_norm']:g}, and {party['noise']['law']} noise of "
            f"scale {party['noise']['scale_of_sum']:.6g} is added to their sum by the server, "
            "which is trusted to add it. "
        )
        bounds = summary["record_bounds"]
        if bounds["charged"] == "outer":
            statement += (
                "The record's bound is that of the server's noise too; by the parties' own noise "
                f"alone it is epsilon {bounds['inner']['epsilon']!r}. "
            )
    return {
        "parley.version": summary["parley_version"],
        "parley.run": summary["run_id"],
        "parley.epsilon": repr(summary["epsilon"]),
        "parley.delta": repr(summary["delta"]),
        "parley.unit": summary["unit"],
        "parley.neighbouring": summary["neighbouring"],
        **_party_budget(summary),
        "parley.statement": f"{statement}Other releases from the same records add to this.",
    }


def _party_budget(summary: dict[str, Any]) -> dict[str, str]:
    """The second guarantee's figures, where there are two."""
    party = summary.get("party_level")
    if party is None:
        return {}
    seeded = "none (seeded noise)" if summary["noise"]["seeded"] else ""
    return {
        "parley.party-epsilon": seeded or repr(party["epsilon"]),
        "parley.party-delta": seeded or repr(party["delta"]),
        "parley.party-unit": party["unit"],
        "parley.party-neighbouring": party["neighbouring"],
    }
