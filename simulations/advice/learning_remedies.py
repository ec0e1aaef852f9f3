"""Recommend what a simulated run's model learns from, if noise is not what limits it."""

from __future__ import annotations

from parley.client.data.schema import Schema
from parley.client.features.feature_error import FeatureError
from parley.privacy.accounting.rounding import format_exact
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.jobs.set_option_formatting import format_settings
from parley.server.records.evaluation import ClassifierMetrics, RegressionMetrics
from parley.server.statements.model_shortcoming import MIN_USEFUL_AUC
from parley.server.statements.number_format import format_number
from parley.simulations.advice.advice_check import ROUNDS, find_off_rule_keys, is_accepted_here
from parley.simulations.advice.noise_remedies import MAX_EPSILON
from parley.simulations.data.job_feature_map import build_feature_map
from parley.simulations.data.simulated_experiment import Experiment

_FOUND = 0.3
"""Share of a rare label's records that a useful threshold finds."""


def list_cures(
    job: Job, experiment: Experiment, found: ClassifierMetrics | RegressionMetrics | None
) -> list[str]:
    """Return what may help a model whose baseline learns nothing either, as sentences."""
    learned = format_settings_hint(job, experiment) or _describe_curve_epsilon(job, experiment)
    cures = [each for each in (learned, describe_threshold(found)) if each]
    return cures or [_describe_schema_review(experiment)]


def format_settings_hint(job: Job, experiment: Experiment) -> str:
    """Return the command that learns from more; empty if the job does so already."""
    hats = ["model.features=hats"] if _can_use_splines(job, experiment) else []
    keys = hats + find_off_rule_keys(job, experiment)
    if not keys or not is_accepted_here(job, experiment, keys):
        return ""
    return f"Try {'this' if len(keys) == 1 else 'these'}: `parley run … {format_settings(keys)}`"


def _can_use_splines(job: Job, experiment: Experiment) -> bool:
    """Return whether the job has no feature map, and linear splines would give it more columns."""
    if job.model.feature_map:
        return False
    schema = Schema.from_toml(experiment.data.schema)
    try:
        asked = load_job(values=job.to_values(), overrides=["model.features=hats"])
        hats = build_feature_map(asked)
        wider = hats is not None and hats.bind(schema).width > schema.dimension
        return wider and _is_spline_chosen(job, experiment) is not False
    except (FeatureError, JobError):
        return False  # It takes no map, or has no such columns.


def _is_spline_chosen(job: Job, experiment: Experiment, *keys: str) -> bool | None:
    """Return whether the rule takes linear splines with other keys; None without a rule."""
    autos = ("model.features=auto", ROUNDS, "algorithm.learning-rate=auto")
    try:
        asked = load_job(values=job.to_values(), overrides=[*autos, *keys])
        ruled = asked.resolve_auto(experiment.federation, experiment.data.classes)
    except JobError:
        return None
    if getattr(ruled.algorithm, "learning_rate", "auto") == "auto":
        return None
    return bool(ruled.model.feature_map)


def _describe_curve_epsilon(job: Job, experiment: Experiment) -> str:
    """Describe from which ε on the rule learns curves, if the job's ε is too small."""
    if job.model.is_mapped or _is_spline_chosen(job, experiment) is not False:
        return ""
    epsilon = job.privacy.epsilon
    while 2 * epsilon <= MAX_EPSILON:
        epsilon *= 2
        key = f"privacy.epsilon={format_exact(epsilon)}"
        if _is_spline_chosen(job, experiment, key) and is_accepted_here(job, experiment, [key]):
            return (
                "This little signal is learned from columns as they are. Curves (hats) begin to "
                f"pay with `parley run … --set {key}`"
            )
    return ""


def _describe_schema_review(experiment: Experiment) -> str:
    """Describe what to review in the schema if no other cause is left."""
    schema = Schema.from_toml(experiment.data.schema)
    unread = [name for name in schema.columns if name not in schema.used]
    left = f" and columns that it ignores ({', '.join(map(repr, unread[:5]))})" if unread else ""
    return (
        "These columns, as the schema reads them, do not predict the label: look in the schema "
        f"for ranges far wider than the values{left}"
    )


def describe_threshold(evaluation: ClassifierMetrics | RegressionMetrics | None) -> str:
    """Describe a threshold that predicts at least as many positives as there are."""
    if not isinstance(evaluation, ClassifierMetrics) or (evaluation.auc or 0) < MIN_USEFUL_AUC:
        return ""
    useful = [row for row in evaluation.thresholds if row.recall]
    if not useful:
        return ""
    share = sum(evaluation.confusion[1]) / evaluation.records
    useful = [row for row in useful if (row.recall or 0) >= _FOUND] or useful
    best = min(useful, key=lambda row: abs(row.positive - share))
    return (
        f"It does rank (AUC {format_number(evaluation.auc, 3)}): `parley predict RUN ROWS "
        f"--threshold {best.least:g}` predicts {evaluation.labels[1]!r} for "
        f"{format_number(best.positive, 3)} of them, with precision "
        f"{format_number(best.precision, 3)} and recall {format_number(best.recall, 3)}"
    )
