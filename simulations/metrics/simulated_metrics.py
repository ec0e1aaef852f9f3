"""Add to a run's summary what only a simulation may know.

`build_dp_sgd_facts` accounts DP-SGD by party, for `dp_sgd` of `summary.json`.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.schema import Schema
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.server.jobs.job import Job
from parley.server.records.run_summary import DpSgdSummary, PartyAccount, RunSummary
from parley.simulations.advice.recommendations import recommend_changes
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.metrics.evaluation import evaluate_predictions
from parley.simulations.metrics.heterogeneity_figures import describe_partition

SIMULATION_ONLY = (
    "loss",
    "baseline_loss",
    "excess_loss",
    "accuracy",
    "baseline_accuracy",
    "majority_accuracy",
    "records_by_party",
    "partition",
    "judgement",
    "baseline_judgement",
    "verdict",
    "advice",
)

_DRAFTED = (
    "The schema was inferred from the records, and no ε covers that. Before anything is "
    "released, replace its ranges, centres and categories by public knowledge, and delete its "
    "line drafted = true."
)
_DIVERGED = (
    "The model diverged: its loss on the training records is not finite. Records with a "
    "gradient that is not finite add zero, so that nothing reveals them. Use a smaller learning "
    "rate, or a model that is finite on every row."
)


def add_simulated_metrics(
    summary: RunSummary,
    *,
    job: Job,
    experiment: Experiment,
    theta: NDArray[np.float64],
    dp_sgd: DpSgdSummary | None,
) -> RunSummary:
    """Return a run's summary with what only a simulation may know, marked as such.

    Loss is the federated training objective with its λ term. Accuracy is measured on the held-out
    records. The baseline is the objective's non-private optimum (none if the data are too large to
    solve, or run.baseline is false).
    """
    best = experiment.compute_baseline() if job.run.baseline else None
    found = experiment.evaluate(theta) if best is None else experiment.compute_metrics(theta, best)
    twin = None if best is None else experiment.predict_held_out(best)
    schema = experiment.data.schema  # none if Parley reads no record
    block, data = experiment.block, experiment.data
    names = {"label_names": data.label_names, "party_names": data.party_names}
    summary = summary.with_fields(
        records_by_party=block.sizes.tolist() if schema else [],
        **found,
        partition=describe_partition(job, block.labels, block.offsets, **names),
        simulation_only=SIMULATION_ONLY,
        dp_sgd=dp_sgd,
        judgement=evaluate_predictions(experiment.predict_held_out(theta)),
        baseline_judgement=evaluate_predictions(twin),
    )
    advice = [_DRAFTED] if schema and Schema.from_toml(schema).drafted else []
    verdict, better = recommend_changes(summary, job=job, experiment=experiment)
    if not math.isfinite(found.get("loss") or 0.0):
        verdict, better = _DIVERGED, []
    return summary.with_fields(verdict=verdict, advice=[*advice, *better, *_list_warnings(summary)])


def _list_warnings(summary: RunSummary) -> list[str]:
    """Return warnings about the privacy of a run."""
    advice = []
    noise = summary.primary.noise
    if summary.primary.delta > summary.primary.delta_budget:
        advice.append(
            f"δ = {format_exact(summary.primary.delta_budget)} was requested. The rounded "
            "l2-laplace noise is pure except for its sampler's distance, stated as δ = "
            f"{format_rounded_up(summary.primary.delta, 3)}. laplace-l1 keeps δ = 0 to the last "
            "bit."
        )
    if noise.seeded:
        advice.append("The noise was seeded: repeat without a seed before anything is released.")
    if summary.primary.delta * sum(summary.records_by_party) >= 1:
        advice.append(
            f"δ = {format_rounded_up(summary.primary.delta)} is not small compared with 1/N for "
            f"N = {sum(summary.records_by_party)} records: a mechanism that reveals one record "
            "in full can satisfy it. Choose privacy.delta well below 1/N."
        )
    if summary.parties == 1:
        advice.append("One party: this is the centralised case, in which a sum hides no one.")
    return advice


def build_dp_sgd_facts(
    plan: ReleasePlan,
    *,
    answered: NDArray[np.int64],
    records: NDArray[np.int64],
    before: Composition,
    model: object,
) -> DpSgdSummary | None:
    """Return rate, noise, clip, steps and ε by RDP and PLD of every party; None without DP-SGD.

    Args:
        answered: `[B]` releases that each party computed for and is charged.
        records: `[B]` its number of records, which only a simulation knows.
        before: what every party was charged before the first round.
        model: the network that the parties trained.
    """
    mechanism = plan.primary.mechanism.training
    if mechanism is None:
        return None
    accounts = {
        count: before.add(mechanism.event(), count=count).compute_epsilons(plan.primary.delta)
        for count in np.unique(answered).tolist()
    }
    return DpSgdSummary(
        sampling_rate=mechanism.sampling_rate,
        noise_multiplier=mechanism.noise_multiplier,
        gradient_multiplier=mechanism.gradient_multiplier,
        clipped_share=mechanism.clipped_share,
        clip_norm=mechanism.clip_norm,
        steps_per_round=mechanism.steps,
        parties_by_releases={str(n): k for n, k in sorted(Counter(answered.tolist()).items())},
        largest=accounts[int(answered.max())],
        parties=tuple(
            PartyAccount(
                party=party,
                records=int(records[party]),
                releases=int(count),
                steps=int(count) * mechanism.steps,
                epsilon=accounts[int(count)],
            )
            for party, count in enumerate(answered)
        ),
        precision=str(getattr(model, "dtype", "float64")).removeprefix("torch."),
        device=str(getattr(model, "device", "cpu")),
    )
