"""Evaluate a model on held-out records: a simulation's metrics, each a separate release.

Accuracy alone hides a model that learned nothing if one label is common. So there are also metrics
of the ranking (area under the ROC curve, average precision), of the probabilities (log loss, Brier
score, calibration), and of the decisions (recall, precision, the confusion matrix). With K > 2
labels, the metrics of two are means over the labels, one against the rest.

    >>> import numpy as np
    >>> evaluate_predictions = evaluate_classifier(np.array([0.9, 0.4, 0.6, 0.1]),
    ...     np.array([1, 0, 0, 0]), names=("no", "yes"))
    >>> (evaluate_predictions.auc, evaluate_predictions.recall, evaluate_predictions.precision,
    ... evaluate_predictions.confusion)
    (1.0, 1.0, 0.5, ((2, 1), (0, 1)))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.server.records.evaluation import (
    CalibrationBin,
    ClassifierMetrics,
    RegressionMetrics,
    RocPoint,
    ThresholdMetrics,
)
from parley.simulations.data.simulated_experiment import Predictions

_BINS = 10
_ROC_POINTS = 41
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
_LEAST = float(np.finfo(np.float64).eps)
"""Minimum distance of probabilities from 0 and 1 in the log loss, as is usual."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def evaluate_predictions(
    predictions: Predictions | None,
) -> ClassifierMetrics | RegressionMetrics | None:
    """Return the metrics of a model's predictions of held-out records; None without predictions."""
    if predictions is None:
        return None
    if not predictions.names:
        return evaluate_targets(predictions.values, predictions.truth)
    names, proper = predictions.names, predictions.probabilities
    return evaluate_classifier(predictions.values, predictions.truth, names=names, proper=proper)


def evaluate_classifier(
    chances: NDArray[Any], labels: NDArray[Any], *, names: tuple[str, ...], proper: bool = True
) -> ClassifierMetrics:
    """Return the metrics of a classifier's probabilities, or of scores.

    Args:
        chances: `[N]` of the second of two labels, or `[N, K]`.
        labels: `[N]` in 0..K−1.
        proper: False for scores that only rank (0.5 and more predicts the second label): they have
            no log loss, Brier score or calibration.
    """
    if not len(labels) or len(chances) != len(labels):
        raise ValueError(f"Expected as many rows as labels, got {len(chances)}, {len(labels)}.")
    shares = np.asarray(chances, np.float64)
    if shares.ndim == 1:
        shares = np.stack([1 - shares, shares], axis=1)
    count = shares.shape[1]
    truth = np.asarray(labels, np.int64)
    best = (shares[:, 1] >= 0.5).astype(np.int64) if count == 2 else shares.argmax(1)
    confusion = np.zeros((count, count), np.int64)
    np.add.at(confusion, (truth, best), 1)
    sides = [1] if count == 2 else list(range(count))
    ranked = [(shares[:, side], truth == side) for side in sides]
    hits = np.diag(confusion)[sides]
    is_one = np.eye(count)[truth]
    certain = (shares[:, 1], truth == 1) if count == 2 else (shares.max(1), truth == best)
    return ClassifierMetrics(
        labels=names,
        records=len(truth),
        auc=_compute_mean([compute_auc(*side) for side in ranked]),
        average_precision=_compute_mean([_compute_average_precision(*side) for side in ranked]),
        recall=_compute_mean(_compute_ratios(hits, confusion.sum(1)[sides])),
        precision=_compute_mean(_compute_ratios(hits, confusion.sum(0)[sides])),
        log_loss=_compute_log_loss(shares, truth) if proper else None,
        brier=float(np.square(shares - is_one)[:, sides].sum(1).mean()) if proper else None,
        calibration=_compute_calibration(*certain) if proper else (),
        confusion=tuple(tuple(int(n) for n in row) for row in confusion),
        thresholds=_compute_thresholds(*ranked[0]) if proper and count == 2 else (),
        roc=_compute_roc(*ranked[0]) if count == 2 else (),
    )


def evaluate_targets(predicted: NDArray[Any], targets: NDArray[Any]) -> RegressionMetrics:
    """Return the root of the mean squared error, and R²; R² is None if all targets are equal."""
    wrong = np.asarray(predicted, np.float64) - targets
    spread = float(np.square(targets - np.mean(targets)).sum())
    return RegressionMetrics(
        records=len(wrong),
        rmse=float(np.sqrt(np.square(wrong).mean())),
        r2=1 - float(np.square(wrong).sum()) / spread if spread else None,
    )


def _compute_ratios(parts: NDArray[np.int64], wholes: NDArray[np.int64]) -> list[float | None]:
    return [p / w if w else None for p, w in zip(parts.tolist(), wholes.tolist(), strict=True)]


def _compute_mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that are defined."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def compute_auc(scores: NDArray[Any], positive: Flags) -> float | None:
    """Return P[score of a positive > score of a negative] + half P[equal]; None without both."""
    yes, no = int(positive.sum()), int((~positive).sum())
    if not yes or not no:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # Equal scores have their mean rank.
    return float((ranks[inverse][positive].sum() - yes * (yes + 1) / 2) / (yes * no))


def _compute_average_precision(scores: Floats, positive: Flags) -> float | None:
    """Return Σ (R_n − R_{n−1})·P_n over the thresholds."""
    if not positive.any():
        return None
    order = np.argsort(-scores, kind="stable")
    ends = np.r_[np.flatnonzero(np.diff(scores[order])), len(scores) - 1]
    hits = np.cumsum(positive[order])[ends]
    return float((np.diff(np.r_[0, hits]) * hits / (ends + 1)).sum() / hits[-1])


def _compute_thresholds(chances: Floats, positive: Flags) -> tuple[ThresholdMetrics, ...]:
    """Return the metrics of some thresholds, with three digits each.

    They are one half, and those that predict certain shares of the records positive: the actual
    share, and some larger and smaller ones.
    """
    falling = np.sort(chances)[::-1]
    wanted = [*_SHARES, positive.mean()]
    ends = [falling[max(round(share * len(falling)), 1) - 1] for share in wanted]
    rows = []
    for each in sorted({float(f"{end:.3g}") for end in ends} - {0.0, 1.0} | {0.5}):
        answered = chances >= each
        given, hits = int(answered.sum()), int((answered & positive).sum())
        precision = hits / given if given else None
        recall = hits / int(positive.sum()) if positive.any() else None
        part = given / len(chances)
        rows.append(ThresholdMetrics(least=each, positive=part, precision=precision, recall=recall))
    return tuple(rows)


def _compute_roc(scores: Floats, positive: Flags) -> tuple[RocPoint, ...]:
    """Return ROC points at quantiles of the scores; empty without both labels."""
    if positive.all() or not positive.any():
        return ()
    falling = np.sort(scores)[::-1]
    ends = falling[np.linspace(0, len(falling) - 1, _ROC_POINTS - 1).astype(np.int64)]
    return tuple(
        RocPoint(
            false_alarms=float((scores[~positive] >= end).mean()),
            recall=float((scores[positive] >= end).mean()),
        )
        for end in [np.inf, *np.unique(ends)[::-1]]
    )


def _compute_log_loss(shares: Floats, truth: NDArray[np.int64]) -> float:
    own = np.clip(shares[np.arange(len(truth)), truth], _LEAST, 1)
    return float(-np.log(own).mean())


def _compute_calibration(chances: Floats, happened: Flags) -> tuple[CalibrationBin, ...]:
    """Return bins of similar probabilities: mean probability and observed frequency."""
    at = np.minimum((chances * _BINS).astype(np.int64), _BINS - 1)
    return tuple(
        CalibrationBin(
            predicted=float(chances[at == each].mean()),
            observed=float(happened[at == each].mean()),
            records=int((at == each).sum()),
        )
        for each in np.unique(at).tolist()
    )
