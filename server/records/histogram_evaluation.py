"""Evaluate a model from a noisy histogram of held-out records, by post-processing.

With two labels, cell `[k, y]` counts records of label y with a probability in interval k. Every
edge is a point of the ROC curve and a threshold; every interval is a row of the calibration. With
more labels, the histogram is the confusion matrix. Each metric has the interval that the noise
leaves it, by itself (`parley.privacy.estimation.roc_curve`).

    >>> counts = np.array([[90.0, 10.0], [10.0, 90.0]])
    >>> found = evaluate_counts(counts, labels=("no", "yes"), edges=(0.5,), within=5.0)
    >>> found.auc, found.accuracy, [round(end, 3) for end in found.within["recall"]]
    (0.9, 0.9, [0.857, 0.947])
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.privacy.estimation.roc_curve import IntervalEstimate, NoisyHistogram
from parley.server.records.evaluation import (
    CalibrationBin,
    ClassifierMetrics,
    LabelMetrics,
    RocPoint,
    ThresholdMetrics,
)


def evaluate_counts(
    counts: NDArray[np.float64],
    *,
    labels: Sequence[str],
    edges: Sequence[float],
    within: float,
    proper: bool = True,
) -> ClassifierMetrics | None:
    """Return the metrics of `[B, 2]` or `[K, K]` noisy counts; None if the noise leaves no records.

    Args:
        within: bound on the noise of one count, at the intervals' level.
        proper: whether scores are probabilities; otherwise they only rank.
    """
    found = NoisyHistogram(cells=counts, within=within)
    total = float(counts.sum())
    if not total > 0:
        return None
    made = _evaluate_two_labels if len(labels) == 2 else _evaluate_more_labels
    figures = made(found, labels, edges, proper)
    del figures["accuracy"]  # The confusion matrix contains it.
    reach = within * counts.size**0.5
    figures["within"]["records"] = (max(0.0, total - reach), total + reach)
    return ClassifierMetrics(labels=tuple(labels), records=total, **figures)


def _evaluate_two_labels(
    histogram: NoisyHistogram, labels: Sequence[str], edges: Sequence[float], proper: bool
) -> dict[str, Any]:
    intervals, label = _compute_cell_indices(histogram)
    yes = label == 1
    half = intervals > edges.index(0.5)
    thresholds, roc, calibration = [], [], []
    for at, (least, end) in enumerate(pairwise((0.0, *edges, 1.0, 1.0))):
        above, here = intervals >= at, intervals == at
        caught = histogram.compute_share(above & yes, yes)
        if caught and (false_alarms := histogram.compute_share(above & ~yes, ~yes)):
            roc.append(RocPoint(**_build_metrics(false_alarms=false_alarms, recall=caught)))
        if not (proper and least < 1):
            continue
        if at:
            answered = {
                "positive": histogram.compute_share(above),
                "precision": histogram.compute_share(yes, above),
                "recall": caught,
            }
            thresholds.append(ThresholdMetrics(least=least, **_build_metrics(**answered)))
        if came := histogram.compute_share(yes, here):
            row = {**_build_metrics(observed=came), "records": float(histogram.counts[at].sum())}
            calibration.append(CalibrationBin(predicted=(least + end) / 2, **row))
    return {
        **_build_metrics(
            accuracy=histogram.compute_share(half == yes),
            auc=histogram.compute_area(),
            recall=histogram.compute_share(half, yes),
            precision=histogram.compute_share(yes, half),
        ),
        "confusion": [
            [float(histogram.counts[side & true].sum()) for side in (~half, half)]
            for true in (~yes, yes)
        ],
        "thresholds": tuple(thresholds),
        "roc": tuple(reversed(roc)),
        "calibration": tuple(calibration),
    }


def _evaluate_more_labels(
    histogram: NoisyHistogram, labels: Sequence[str], edges: Sequence[float], proper: bool
) -> dict[str, Any]:
    true, said = _compute_cell_indices(histogram)
    by_label = []
    for at, label in enumerate(labels):
        recall = histogram.compute_share(said == at, true == at)
        precision = histogram.compute_share(true == at, said == at)
        metrics = _build_metrics(recall=recall, precision=precision)
        by_label.append(LabelMetrics(label=label, **metrics))
    return {
        **_build_metrics(accuracy=histogram.compute_share(true == said)),
        "confusion": histogram.counts.tolist(),
        "by_label": tuple(by_label),
    }


def _compute_cell_indices(histogram: NoisyHistogram) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return `[B, 2]` or `[K, K]` each cell's row, and its column."""
    rows, columns = histogram.cells.shape
    row, column = np.divmod(np.arange(rows * columns).reshape(rows, columns), columns)
    return row, column


def _build_metrics(**estimates: IntervalEstimate | None) -> dict[str, Any]:
    """Return values by name, and under `within` the intervals of those that are known."""
    known = {name: each for name, each in estimates.items() if each is not None}
    values = {name: known[name].value if name in known else None for name in estimates}
    return {**values, "within": {name: (each.low, each.high) for name, each in known.items()}}
