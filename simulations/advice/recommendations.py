"""Recommend changes to a simulated run: a verdict on its model, and what would improve it.

First comes the non-private baseline. If it is of no use either, no ε makes the model good, and the
cause is in its input: the feature map, the steps, the schema. Otherwise the noise is the cause, and
the formulas of `parley plan` determine by how much each public change would reduce it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parley.client.algorithms.registry import ALGORITHMS
from parley.server.jobs.job import Job
from parley.server.jobs.set_option_formatting import format_settings
from parley.server.records.evaluation import ClassifierMetrics, RegressionMetrics
from parley.server.records.run_summary import RunSummary
from parley.server.statements.model_shortcoming import MIN_USEFUL_AUC, find_shortcoming
from parley.server.statements.number_format import format_number
from parley.simulations.advice.advice_check import find_off_rule_keys, is_accepted_here
from parley.simulations.advice.noise_remedies import ACCEPTABLE_LOSS, list_noise_reductions
from parley.simulations.data.simulated_experiment import Experiment

_NEAR = 0.05
"""AUC difference below which two models rank about equally well."""

_FEW = 100
"""Number of held-out records below which a metric is tested against chance."""

_CLEAR = 0.05
"""Accuracy or AUC beyond chance, or R², that shows that the baseline learned something."""

_SMALL = 5
"""Factor by which half of the parties hold more records than the smallest, if it is an outlier."""

_MAX_REDUCTIONS = 4
_HELD_OUT = "held-out records"


def recommend_changes(
    summary: RunSummary, *, job: Job, experiment: Experiment
) -> tuple[str, list[str]]:
    """Return the verdict on a run's model, empty without objections, and further advice."""
    found, twin = summary.judgement, summary.baseline_judgement
    weighted, lost = bool(summary.class_weights), _compute_noise_loss(summary)
    wrong = find_shortcoming(found, records=_HELD_OUT, weighted=weighted)
    wrong = wrong or (_describe_half_lost(found, twin) if lost else "")
    if few := _describe_too_few(found):
        return _join_sentences(wrong, few), _list_further_advice(summary, job, experiment)
    if wrong and twin is not None and not _is_noise_limited(found, twin, weighted=weighted):
        from parley.simulations.advice import learning_remedies  # noqa: PLC0415 - of few runs

        said = f"The non-private model is no better{_format_metrics(twin)}: noise is not the cause"
        cures = learning_remedies.list_cures(job, experiment, found)
        return _join_sentences(wrong, said, *cures), []
    unanswered = _list_class_weights(found, job, experiment)
    if not (wrong or lost):
        return "", unanswered
    further = [*_list_further_advice(summary, job, experiment), *unanswered]
    if not wrong:
        return "", further
    if twin is None:
        return _join_sentences(wrong), further
    better = f"The non-private model is better{_format_metrics(twin)}"
    if job.model.learns == "network":
        better += ": noise, clipping and the number of steps make the difference"
    return _join_sentences(wrong, better, _describe_remedy(summary, job, experiment, lost)), further


def _describe_half_lost(evaluation: Any, baseline: Any) -> str:
    """Report that the noise takes most of what the baseline learns; empty if it does not."""
    if isinstance(evaluation, RegressionMetrics):
        pairs = [(evaluation.r2 or 0.0, baseline.r2 or 0.0)]
    elif isinstance(evaluation, ClassifierMetrics):
        always = evaluation.most_common_label[1] / evaluation.records
        pairs = [(evaluation.accuracy - always, baseline.accuracy - always)]
        pairs.append(((evaluation.auc or 0.5) - 0.5, (baseline.auc or 0.5) - 0.5))
    else:
        return ""
    most = any(2 * own < other and other > _CLEAR for own, other in pairs)
    return f"The noise takes most of what is learned{_format_metrics(evaluation)}" if most else ""


def _describe_too_few(evaluation: ClassifierMetrics | RegressionMetrics | None) -> str:
    """Report too few held-out records to distinguish a model from the most common label."""
    if not isinstance(evaluation, ClassifierMetrics) or evaluation.records >= _FEW:
        return ""
    records, right = round(evaluation.records), round(evaluation.correct_records)
    low, high = _compute_wilson_interval(right, records)
    if low > evaluation.most_common_label[1] / records:
        return ""
    return (
        f"{records} held-out records are too few to distinguish a good model from a poor one: on "
        f"others its accuracy may be {format_number(low, 2)} to {format_number(high, 2)}"
    )


def _compute_wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    share, z2 = right / count, 1.96**2
    middle, scale = share + z2 / (2 * count), 1 + z2 / count
    half = math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))
    return (middle - half) / scale, (middle + half) / scale


def _list_class_weights(
    evaluation: ClassifierMetrics | RegressionMetrics | None, job: Job, world: Experiment
) -> list[str]:
    """Return the weights with which the rare ones of several labels are predicted too."""
    if not isinstance(evaluation, ClassifierMetrics) or job.model.label_weights:
        return []
    if len(evaluation.labels) == 2:
        return []
    held = dict(zip(evaluation.labels, map(sum, evaluation.confusion), strict=True))
    root = {name: round(math.sqrt(max(held.values()) / max(held[name], 1))) for name in held}
    never = [name for name in held if name not in evaluation.predicted_labels]
    rare = [name for name in never if root[name] > 1 and held[name]]
    weights = ",".join(str(root[name] if name in rare else 1) for name in held)
    key = f"model.class-weights=[{weights}]"
    if not rare or not is_accepted_here(job, world, [key]):
        return []
    named = ", ".join(map(repr, rare))
    return [f"It never predicts {named}: `parley run … --set '{key}'` does."]


def _describe_remedy(
    summary: RunSummary, job: Job, experiment: Experiment, noise_loss: float
) -> str:
    """Describe what helps a model of no use if its baseline is of some."""
    from parley.simulations.advice import learning_remedies  # noqa: PLC0415 - of few runs
    from parley.simulations.advice.sufficient_epsilon import describe_noise_remedy  # noqa: PLC0415 - of few runs

    found, twin = summary.judgement, summary.baseline_judgement
    both = isinstance(found, ClassifierMetrics) and isinstance(twin, ClassifierMetrics)
    ranks_near = both and _compute_auc_gap(found, twin) < _NEAR
    if ranks_near and (cure := learning_remedies.describe_threshold(found)):
        return cure
    row = ALGORITHMS.get(summary.algorithm)
    # Changes without cost come before those that cost ε.
    hint = learning_remedies.format_settings_hint
    if job.model.learns == "network" and (cure := hint(job, experiment)):
        return cure
    if row and row.remedy and is_accepted_here(job, experiment, row.remedy):
        return row.advice.format(remedy=f"`{format_settings(row.remedy)}`")
    return describe_noise_remedy(summary, job, experiment, noise_loss)


def _list_further_advice(summary: RunSummary, job: Job, experiment: Experiment) -> list[str]:
    """List what reduces the noise, or its harm."""
    ways = "; ".join(
        f"{way.factor:.2g} times with {way.description}"
        for way in list_noise_reductions(job, experiment)[:_MAX_REDUCTIONS]
    )
    found = [_describe_smallest_party(summary, job, experiment)]
    if ways:
        found.append(f"By the formulas of `parley plan` the noise would be smaller: {ways}.")
    if (keys := find_off_rule_keys(job, experiment)) and is_accepted_here(job, experiment, keys):
        found.append(
            f"`parley run … {format_settings(keys)}` makes the steps that this budget pays for."
        )
    return [each for each in found if each]


def _describe_smallest_party(summary: RunSummary, job: Job, experiment: Experiment) -> str:
    """Describe the party whose few records determine the noise; empty without an outlier."""
    sizes = experiment.block.sizes
    least, others = int(sizes.argmin()), float(np.median(sizes))
    few = experiment.federation.min_records == sizes[least] and _SMALL * sizes[least] < others
    if not few or job.parties.weights == "size" or job.privacy.has_private_sizes:
        return ""
    names = summary.partition.parties if summary.partition else None
    name = repr(names[least]) if names else str(least)
    held = f"{sizes[least]} record{'' if sizes[least] == 1 else 's'}"
    key = "parties.weights=size"
    weigh = f", or weight parties by their records (`--set {key}`)"
    return (
        f"Party {name} holds {held}, half of the parties {others:.0f} or more. With equal "
        "weights the smallest party determines the noise: leave its records out of the "
        f"data{weigh if is_accepted_here(job, experiment, [key]) else ''}."
    )


def _join_sentences(*sentences: str) -> str:
    return " ".join(f"{each}." for each in sentences if each)


def _is_noise_limited(
    evaluation: ClassifierMetrics | RegressionMetrics | None,
    baseline: ClassifierMetrics | RegressionMetrics,
    *,
    weighted: bool,
) -> bool:
    """Return whether the baseline is of use if the model is not, or ranks far better."""
    if not find_shortcoming(baseline, records=_HELD_OUT, weighted=weighted):
        return True
    if not (isinstance(evaluation, ClassifierMetrics) and isinstance(baseline, ClassifierMetrics)):
        return False
    return (baseline.auc or 0) >= MIN_USEFUL_AUC and _compute_auc_gap(evaluation, baseline) >= 0.1


def _compute_auc_gap(evaluation: Any, baseline: Any) -> float:
    """Return by how much the baseline ranks better."""
    return float((baseline.auc or 0.0) - (evaluation.auc or 0.0))


def _format_metrics(evaluation: ClassifierMetrics | RegressionMetrics) -> str:
    if isinstance(evaluation, RegressionMetrics):
        return "" if evaluation.r2 is None else f" (R² {format_number(evaluation.r2, 3)})"
    auc = "" if evaluation.auc is None else f", AUC {format_number(evaluation.auc, 3)}"
    return f" (accuracy {format_number(evaluation.accuracy, 4)}{auc})"


def _compute_noise_loss(summary: RunSummary) -> float:
    """Return the noise's cost in accuracy, AUC, R² or loss beyond a standard error, or 0."""
    found, twin = summary.judgement, summary.baseline_judgement
    if isinstance(found, RegressionMetrics) and isinstance(twin, RegressionMetrics):
        lost = (twin.r2 or 0.0) - (found.r2 or 0.0)
        return lost if lost > ACCEPTABLE_LOSS else 0.0
    if not (isinstance(found, ClassifierMetrics) and isinstance(twin, ClassifierMetrics)):
        excess = summary.excess_loss or 0.0  # Without held-out records nothing else is known.
        return excess if found is None and excess > ACCEPTABLE_LOSS else 0.0
    rarest = max(min(sum(row) for row in twin.confusion), 1)
    lost = (twin.correct_records - found.correct_records) / twin.records
    kinds = [(lost, twin.correct_records / twin.records, twin.records)]
    kinds.append((_compute_auc_gap(found, twin), twin.auc or 0.5, rarest))
    return max(
        lost if lost > max(ACCEPTABLE_LOSS, math.sqrt(of * (1 - of) / count)) else 0.0
        for lost, of, count in kinds
    )
