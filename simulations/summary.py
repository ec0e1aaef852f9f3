"""What a run comes to: the content of `summary.json`, and advice that its numbers support."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client.plan import ReleasePlan
from server.job import Job
from server.release import account, averaged
from server.rounds import Outcome
from server.run_folder import RunFolder
from simulations.experiment import Experiment
from simulations.spread import partition_facts
from simulations.two_units import two_units_facts

__all__ = ["privacy_statement", "summarise"]

SIMULATION_ONLY = (
    "loss",
    "baseline_loss",
    "excess_loss",
    "accuracy",
    "baseline_accuracy",
    "majority_accuracy",
    "records_by_party",
    "partition",
    "advice",
)


def summarise(
    *,
    job: Job,
    plan: ReleasePlan,
    experiment: Experiment,
    outcome: Outcome,
    theta: NDArray[np.float64],
    secure_sum: dict[str, Any],
    folder: RunFolder,
    ledger_head: dict[str, Any],
    version: str,
    seconds: float,
    dp_sgd: dict[str, Any] | None = None,
    components: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The summary of a run that ended, complete or not.

    Args:
        dp_sgd: what DP-SGD came to, party by party.
        components: parties and traffic of the private components' release.

    Loss is the federated training objective with its λ term, accuracy is measured on the
    held-out records; both, and the non-private baseline (the objective's optimum), are
    simulation-only. ε and δ are what was spent, by the lowest proved conversion.
    """
    progress, components = outcome.progress, components or {}
    spent = account(progress.spent, plan.delta)
    optimum = experiment.optimum()
    loss, baseline_loss = experiment.loss(theta), experiment.loss(optimum)
    parties = experiment.federation.parties
    noise = averaged(job, plan)
    seconds_by_round = [line["seconds"] for line in progress.lines]
    summary: dict[str, Any] = {
        "run_dir": str(folder.path),
        "run_id": folder.run_id,
        "ledger": job.privacy.ledger,
        "ledger_head": ledger_head,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "parley_version": version,
        "engine": "fast",
        "status": outcome.status,
        "reason": outcome.reason,
        "algorithm": job.algorithm.kind,
        "model": job.model.kind,
        "metric": "r2" if job.model.kind == "ridge" else "accuracy",
        "data": job.data.source,
        "parties": parties,
        "records_by_party": experiment.block.sizes.tolist(),
        "min_records": plan.min_records,
        "dimension": plan.dimension,
        "rounds": job.rounds,
        "rounds_done": progress.done,
        "epsilon": spent["epsilon_charged"],
        "delta": plan.delta,
        "epsilon_budget": job.privacy.epsilon,
        "delta_budget": job.privacy.delta,
        "rho": spent["rho"],
        "epsilon_by_conversion": spent["epsilon"],
        "conversion": spent["conversion"],
        "unit": str(plan.unit),
        "neighbouring": str(plan.neighbouring),
        "calibration": plan.calibration,
        "noise": {
            "law": plan.mechanism.law,
            "scale": noise.scale,
            "scale_of_sum": noise.scale * (parties if plan.noise_point == "server" else 1),
            "expected_norm": noise.expected_norm(),
            "sensitivity": noise.sensitivity,
            "point": str(plan.noise_point),
            "seeded": job.seed is not None,
        },
        "secure_aggregation": {
            "ring_bits": plan.encoding.ring_bits,
            "scale_bits": plan.encoding.scale_bits,
            "inflation": plan.inflation,
            "min_survivors": plan.min_survivors,
            **{
                way: components.get(way, 0) + sum(line[way] for line in progress.lines)
                for way in ("bytes_up", "bytes_down")
            },
            **secure_sum,
        },
        "loss": loss,
        "baseline_loss": baseline_loss,
        "excess_loss": loss - baseline_loss,
        "accuracy": experiment.accuracy(theta),
        "baseline_accuracy": experiment.accuracy(optimum),
        "majority_accuracy": experiment.majority_accuracy,
        "seconds": seconds,
        "seconds_per_round": float(np.median(seconds_by_round)) if seconds_by_round else None,
        "simulation_only": list(SIMULATION_ONLY),
    }
    summary["partition"] = partition_facts(job, experiment.block.labels, experiment.block.offsets)
    summary |= two_units_facts(job, plan, progress)
    if components:
        summary["components"] = components
    if dp_sgd is not None:
        device = str(getattr(experiment.model, "device", "cpu"))
        summary["dp_sgd"] = {**dp_sgd, "precision": job.dp_sgd.precision, "device": device}
    summary["advice"] = _advice(summary)
    for key in ("loss", "excess_loss"):
        if not math.isfinite(summary[key]):
            summary[key] = None
    return summary


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


def _advice(summary: dict[str, Any]) -> list[str]:
    """What would improve the result, said only where the numbers support it."""
    advice = []
    noise = summary["noise"]
    if summary["delta"] > summary["delta_budget"]:
        advice.append(
            f"δ = {summary['delta_budget']:g} was asked for; the rounded l2-laplace noise is pure "
            f"but for its sampler's distance, stated as δ = {summary['delta']:.3g}. laplace-l1 "
            "keeps δ = 0 to the last bit."
        )
    if noise["seeded"]:
        advice.append("The noise was seeded: repeat without a seed before anything is released.")
    lost = (summary["baseline_accuracy"] or 0) - (summary["accuracy"] or 0)
    if "dp_sgd" in summary:
        if summary["dp_sgd"].get("precision") == "float32":
            advice.append(
                "Trained in float32, where it is measured, not proved, that rounding keeps every "
                "clipped gradient's share within C: dp-sgd.precision = 'float64' is proved."
            )
        if lost > 0.01:
            advice.append(
                "More records a party, a larger dp-sgd.sampling-rate or more rounds at the same ε "
                "usually help DP-SGD, and so does a smaller network."
            )
    elif summary["status"] == "complete" and (summary["excess_loss"] > 0.01 or lost > 0.01):
        advice.append(
            f"The noise is proportional to 1/(parties × records × ε): twice the records a party "
            f"(now at least {summary['min_records']}), twice the parties (now "
            f"{summary['parties']}) or twice ε (now {summary['epsilon_budget']:g}) each halve it."
        )
        if summary["algorithm"] == "output-perturbation":
            advice.append(
                "gradient-perturbation usually loses less at the same ε when δ > 0 is acceptable."
            )
        elif summary["algorithm"] == "gradient-perturbation":
            advice.append(
                "Fewer rounds mean less noise in each (σ grows as √rounds); a larger model.lambda "
                "needs fewer. `parley plan` shows both before anything is spent."
            )
    if summary["delta"] * sum(summary["records_by_party"]) >= 1:
        advice.append(
            f"δ = {summary['delta']:g} is not small against 1/N for N = "
            f"{sum(summary['records_by_party'])} records: a mechanism that shows one record in "
            "full can meet it. Choose privacy.delta well below 1/N."
        )
    if summary["parties"] == 1:
        advice.append("One party: the centralised case, nobody hides in a sum of one.")
    return advice
