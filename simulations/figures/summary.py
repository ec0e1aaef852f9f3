"""What only a simulation may add to a run's summary, and advice that its numbers support."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.registry import ALGORITHMS
from parley.privacy.accounting.noise_points import point_named
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.server.jobs.job import Job
from parley.server.records import words
from parley.server.records.judgement import Judgement
from parley.server.records.summary import DpSgd, RunSummary
from parley.simulations.data.spread import partition_of
from parley.simulations.data.world import Experiment
from parley.simulations.figures.judging import judged

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
    "advice",
)

_INFERRED = (
    "The schema was read off the records: its ranges and categories say something about them that "
    "no ε covers. Before anything is released, hand over a schema made of public knowledge."
)

_ON_SUM = (
    "The noise is proportional to 1/(parties × records × ε): twice the records a party (now at "
    "least {records}), twice the parties (now {parties}) or twice ε (now {epsilon}) each halve it."
)
_IN_EACH = (
    "The noise is proportional to 1/(√parties × records × ε): twice the records a party "
    "(now at least {records}), four times the parties (now {parties}) or twice ε (now {epsilon}) "
    "each halve it."
)
_RANKS, _CLEAR = 0.6, 0.1
"""An AUC from which a model ranks at all, and how much better another one is beyond doubt."""


def with_simulated_figures(
    summary: RunSummary,
    *,
    job: Job,
    experiment: Experiment,
    theta: NDArray[np.float64],
    dp_sgd: DpSgd | None,
) -> RunSummary:
    """A run's summary with what only a simulation may know, marked so.

    Loss is the federated training objective with its λ term, accuracy is measured on the
    held-out records, the baseline is the objective's non-private optimum (none where the data are
    too large to solve).
    """
    best = experiment.baseline()
    figures = experiment.evaluate(theta) if best is None else experiment.figures(theta, best)
    summary = summary.adding(
        records_by_party=experiment.block.sizes.tolist(),
        **figures,
        partition=partition_of(
            job,
            experiment.block.labels,
            experiment.block.offsets,
            label_names=experiment.label_names,
            party_names=experiment.party_names,
        ),
        simulation_only=SIMULATION_ONLY,
        dp_sgd=dp_sgd,
        judgement=judged(experiment.predictions(theta)),
        baseline_judgement=None if best is None else judged(experiment.predictions(best)),
    )
    diverged = not math.isfinite(figures.get("loss") or 0.0)
    advice = [_INFERRED] if experiment.schema_inferred else []
    return summary.adding(advice=[*advice, *_advice(summary, diverged=diverged)])


def _advice(summary: RunSummary, *, diverged: bool) -> list[str]:
    """What would improve the result, said only where the numbers support it."""
    advice = []
    noise = summary.primary.noise
    if summary.primary.delta > summary.primary.delta_budget:
        advice.append(
            f"δ = {as_written(summary.primary.delta_budget)} was asked for; the rounded l2-laplace "
            "noise is pure but for its sampler's distance, stated as "
            f"δ = {shown_up(summary.primary.delta, 3)}. laplace-l1 keeps δ = 0 to the last bit."
        )
    if noise.seeded:
        advice.append("The noise was seeded: repeat without a seed before anything is released.")
    if diverged:
        advice.append(
            "The model's loss on the training records is not finite: records whose gradient is not "
            "finite add zero, so that nothing tells of them. A smaller learning rate, or a model "
            "that is finite on every row, helps."
        )
    advice += _doubts(summary)
    lost = (summary.baseline_accuracy or 0) - (summary.accuracy or 0)
    if words.on_batches(summary.primary):
        if lost > 0.01:
            advice.append(
                "More records a party, a larger dp-sgd.sampling-rate or more rounds at the same ε "
                "usually help DP-SGD, and so does a smaller network."
            )
    elif summary.status == "complete" and ((summary.excess_loss or 0) > 0.01 or lost > 0.01):
        by_point = _IN_EACH if point_named(noise.point).private_alone else _ON_SUM
        row = ALGORITHMS.get(summary.algorithm)
        advice.append(
            ((row and row.halved) or by_point).format(
                records=summary.min_records,
                parties=summary.parties,
                epsilon=as_written(summary.primary.epsilon_budget),
            )
        )
        advice += [row.advice] if row and row.advice else []
    if summary.primary.delta * sum(summary.records_by_party) >= 1:
        advice.append(
            f"δ = {shown_up(summary.primary.delta)} is not small against 1/N for N = "
            f"{sum(summary.records_by_party)} records: a mechanism that shows one record in "
            "full can meet it. Choose privacy.delta well below 1/N."
        )
    if summary.parties == 1:
        advice.append("One party: the centralised case, nobody hides in a sum of one.")
    return advice


def _doubts(summary: RunSummary) -> list[str]:
    """Where a model that looks good is not: said with the numbers, and what would help."""
    found = summary.judgement
    if not isinstance(found, Judgement):
        return []
    right = sum(row[at] for at, row in enumerate(found.confusion))
    commonest = max(map(sum, found.confusion))
    twin = summary.baseline_judgement
    twin_auc = twin.auc if isinstance(twin, Judgement) else None
    doubts = []
    if right <= commonest:
        line = (
            f"The model is right on {right} of {found.records} held-out records; always answering "
            f"the commonest label is right on {commonest}. Its accuracy says nothing about what "
            "it learned."
        )
        if found.auc is not None and found.auc >= _RANKS:
            line += (
                f" It does rank (AUC {found.auc:.2f}): decide by a threshold on the probability "
                "instead of by the likelier label."
            )
        doubts.append(line)
    if found.auc is not None and found.auc < _RANKS:
        cause = (
            "the noise drowns what there is to learn: more records, more parties or a larger ε "
            "make it smaller"
            if twin_auc is not None and twin_auc >= _RANKS + _CLEAR
            else "so does the non-private model: these columns don't tell the labels apart"
        )
        doubts.append(
            f"The model ranks records hardly better than chance (AUC {found.auc:.2f}, "
            f"non-private {'unknown' if twin_auc is None else f'{twin_auc:.2f}'}), and {cause}."
        )
    return doubts
