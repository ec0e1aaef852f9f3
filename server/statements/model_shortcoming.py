"""State why a model is of no use, from metrics of it."""

from __future__ import annotations

from parley.server.records.evaluation import ClassifierMetrics, RegressionMetrics
from parley.server.statements.number_format import format_number

MIN_USEFUL_AUC = 0.6
"""Minimum AUC of a model that ranks at all."""

_MIN_ANSWERED_SHARE = 0.2
"""Share of its records below which the rarer of two labels is hardly predicted."""


def find_shortcoming(
    metrics: ClassifierMetrics | RegressionMetrics | None, *, records: str, weighted: bool = False
) -> str:
    """Return why a model is of no use, without a full stop; empty if it is of some.

    Args:
        records: which records were predicted, as "held-out records".
        weighted: classes have weights, so that lower accuracy is intended.
    """
    if metrics is None:
        return ""
    of = f"{metrics.records:,} {records}"
    if isinstance(metrics, RegressionMetrics):
        worse = metrics.r2 is not None and metrics.r2 <= 0
        return f"The model predicts {of} no better than their mean does" if worse else ""
    name, count = metrics.most_common_label
    share = format_number(metrics.accuracy, 4)
    if len(metrics.predicted_labels) == 1:
        only = metrics.predicted_labels[0]
        return f"The model predicts {only!r} for all of {of} (accuracy {share})"
    if metrics.correct_records <= count and not weighted:
        always = f"always predicting {name!r} has {format_number(count / metrics.records, 4)}"
        return f"The model's accuracy on {of} is {share}; {always}"
    if len(metrics.labels) == 2 and not weighted:
        rare = 1 - metrics.labels.index(name)
        given, held = sum(row[rare] for row in metrics.confusion), sum(metrics.confusion[rare])
        if given < _MIN_ANSWERED_SHARE * held:
            said = (
                f"The model predicts {metrics.labels[rare]!r} for {format_number(round(given))} "
                f"of {of}"
            )
            return f"{said}; {format_number(round(held))} of them are (accuracy {share})"
    ranks = metrics.auc is None or metrics.auc >= MIN_USEFUL_AUC
    return "" if ranks else f"The model ranks {of} hardly better than chance"
