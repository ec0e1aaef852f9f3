"""Format how good a run's model is, how the run ended, and what a plan expects of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from parley.privacy.accounting.rounding import format_exact, format_rounded_down
from parley.privacy.accounting.threat_model import Adversary
from parley.safe_io.plurals import format_noun
from parley.server.records.evaluation import ClassifierMetrics, Metrics, RegressionMetrics
from parley.server.statements.guarantee_text import format_epsilon_delta, format_scope
from parley.server.statements.number_format import format_number

if TYPE_CHECKING:
    from parley.server.records.run_summary import RunSummary

_COMMONEST = "always predicting the most common label"


def format_class_weights(label_weights: Sequence[float] | None) -> str:
    """Format public weights of the labels; empty if every record counts once."""
    weights = " : ".join(f"{weight:g}" for weight in label_weights or ())
    return f"{weights} (public, of the labels in their order)" if weights else ""


def get_metric_name(run: RunSummary) -> str:
    """Return the name of the metric in the field `accuracy`."""
    return "R²" if run.metric == "r2" else "accuracy"


def list_model_metrics(run: RunSummary) -> list[list[str]]:
    """List accuracy and loss, if the run has them; a loss that is not finite has diverged."""
    rows: list[tuple[str, float | None, float | None]] = []
    if run.accuracy is not None:
        name = f"{get_metric_name(run)}, held-out records"
        rows.append((name, run.accuracy, run.baseline_accuracy))
    if run.majority_accuracy is not None:
        rows.append((_COMMONEST, run.majority_accuracy, run.majority_accuracy))
    if run.loss is not None or run.baseline_loss is not None:
        rows.append(("training loss", run.loss, run.baseline_loss))
    return [
        [name, "diverged" if value is None else format_number(value, 4), format_number(baseline, 4)]
        for name, value, baseline in rows
    ]


_METRIC_NAMES = {
    "auc": "area under the ROC curve",
    "average_precision": "average precision",
    "recall": "recall",
    "precision": "precision",
    "log_loss": "log loss",
    "brier": "Brier score",
    "rmse": "root of the mean squared error",
}
"""Metric → its name, in order of display."""


def list_evaluation_metrics(run: RunSummary) -> list[list[str]]:
    """List the model's metrics on held-out records, next to the non-private model's."""
    found, twin = run.judgement, run.baseline_judgement
    if found is None:
        return []
    return [
        [name, format_number(getattr(found, key), 4), format_number(getattr(twin, key, None), 4)]
        for key, name in _METRIC_NAMES.items()
        if getattr(found, key, None) is not None
    ]


def format_public_test(run: RunSummary) -> str:
    """Format how good a real run's model is on its server's public records."""
    stats = run.public_test
    if stats is None:
        return ""
    said = [f"{stats.records} public records, which cost no ε"]
    if stats.judgement is None:
        said.append("the model's predictions of them are not finite")
    else:
        said += _format_metrics(stats.judgement)
    return "; ".join(said)


def _format_metrics(metrics: ClassifierMetrics | RegressionMetrics) -> list[str]:
    if isinstance(metrics, RegressionMetrics):
        r2 = [] if metrics.r2 is None else [f"R² {format_number(metrics.r2, 4)}"]
        return [f"{_METRIC_NAMES['rmse']} {format_number(metrics.rmse, 4)}", *r2]
    auc = [] if metrics.auc is None else [f"{_METRIC_NAMES['auc']} {format_number(metrics.auc, 4)}"]
    return [
        f"accuracy {format_number(metrics.accuracy, 4)}",
        f"{_COMMONEST} {format_number(metrics.most_common_label[1] / metrics.records, 4)}",
        *auc,
    ]


_STATUS_TEXTS = {
    "interrupted": "Interrupted after {rounds}. To continue it, use `parley run --resume` with "
    "this run's folder: nothing is released or charged twice.",
    "budget-exhausted": "Budget exhausted after {rounds}: the run ended there and kept its last "
    "model.{reason}",
    "too-few-survivors": "Stopped after {rounds}: too few parties survived the next one.{reason}",
}


def format_status(run: RunSummary) -> str:
    """Format how the run ended, in a sentence."""
    if run.status == "complete":
        every = "its one round" if run.rounds <= 1 else f"all {run.rounds:,} rounds"
        return f"Complete: {every} ran."
    rounds = "its one round"
    if run.rounds > 1 or run.rounds_done != run.rounds:
        rounds = f"{run.rounds_done:,} of {run.rounds:,} rounds"
    reason = f" {run.reason}" if run.reason else ""
    if run.status in _STATUS_TEXTS:
        return _STATUS_TEXTS[run.status].format(rounds=rounds, reason=reason)
    return f"{run.status.replace('-', ' ').capitalize()} after {rounds}.{reason}"


def format_parties(run: RunSummary) -> str:
    """Format the number of parties and rounds, and the time."""
    least = ""
    if run.min_records is not None:
        records = f"{run.min_records} {format_noun(run.min_records, 'record')}"
        least = f", each with at least {records}"
    took = "" if run.seconds is None else f", {run.seconds:.1f} s"
    return f"{run.parties}{least}, {run.rounds_done} {format_noun(run.rounds_done, 'round')}{took}"


def format_evaluation(run: RunSummary) -> str:
    """Format the metrics on the parties' held-out records with their noise; may be empty."""
    stats = run.evaluation
    if stats is None:
        return ""
    if not stats.counts:
        return f"not made: {stats.reason}"
    found = stats.judgement
    names = ("accuracy", "auc", "recall", "precision") if found and found.roc else ("accuracy",)
    each = [
        f"{_METRIC_NAMES.get(name, name)} {format_estimate(found, name)}" for name in names if found
    ]
    return (
        f"{'; '.join(each) or 'lost in the noise'} ({100 * stats.confidence:g} % intervals of the "
        f"noise on counts of {stats.summed} of {stats.asked} parties); one release of "
        f"{format_epsilon_delta(stats.epsilon, stats.delta)} ({format_scope(run.primary)}), "
        "within what was spent"
    )


def format_estimate(metrics: Metrics, name: str, digits: int = 3) -> str:
    """Format a metric, with its interval if it has one."""
    value, ends = getattr(metrics, name), (metrics.within or {}).get(name)
    if ends == (0.0, 1.0):
        return "lost in the noise"
    shown = format_number(value, digits)
    if ends is None:
        return shown
    low, high = math.floor(1000 * ends[0]) / 1000, math.ceil(1000 * ends[1]) / 1000
    return f"{shown} ({format_number(low)} to {format_number(high)})"


_COINS = {"in-out": "whether each was present", "one-of-two": "which of two records each was"}


def format_self_audit(run: RunSummary) -> str:
    """Format the lower bound from a run's canaries next to the claimed ε; may be empty."""
    found, of = run.self_audit, run.primary
    if found is None:
        return ""
    readers = Adversary.READERS
    claimed = next((row for row in of.accounts if row.adversary is readers), of.accounts[0])
    return (
        f"ε ≥ {format_rounded_down(found.epsilon_lower, 4)} at δ = {format_exact(of.delta)} with "
        f"{100 * found.confidence:g} % confidence ({format_scope(of)}; against {readers.short}); "
        f"claimed against them: {format_epsilon_delta(claimed.epsilon, claimed.delta)}; if its "
        f"curve is Gaussian, ε ≥ {format_rounded_down(found.epsilon_lower_on_gaussian_curve, 4)}; "
        f"{format_number(found.right)} of {format_number(found.guesses)} guesses right, of "
        f"{format_number(found.canaries)} coins ({_COINS[found.coins]}), which can show at most ε "
        f"= {format_rounded_down(found.ceiling, 4)}: a lower bound, not an estimate"
    )
