"""Define the metrics of a model on held-out records, exact or noisy, as a summary stores them.

Metrics on records of a simulation, or of a server's public test, are exact. Metrics from noisy
counts (`parley.server.records.histogram_evaluation`) have an interval each: `within`.
"""

from __future__ import annotations

from parley.server.records.json_record import JsonRecord, OptionalFloat

Interval = tuple[float, float]
"""Ends between which a metric lies on the same records without noise."""

Number = int | float
"""Number of records; not whole if it is noisy."""


class Metrics(JsonRecord):
    """Base of metrics.

    Attributes:
        within: name → interval at the release's confidence, if counts were noisy; None: exact.
    """

    within: dict[str, Interval] | None = None


class CalibrationBin(Metrics):
    """Records with about the same probability: the mean probability and the observed frequency.

    From noisy counts, `predicted` is the middle of an interval of probabilities.
    """

    predicted: float
    observed: float
    records: Number


class ThresholdMetrics(Metrics):
    """Metrics of predicting the positive label from a probability threshold on.

    Attributes:
        least: the threshold.
        positive: the share of all records that are predicted positive.
        precision, recall: of that prediction.
    """

    least: float
    positive: float
    precision: OptionalFloat
    recall: OptionalFloat


class RocPoint(Metrics):
    """The shares of negative and of positive records that a threshold predicts positive."""

    false_alarms: float
    recall: float


class LabelMetrics(Metrics):
    """Recall and precision of one of K > 2 labels."""

    label: str
    recall: OptionalFloat
    precision: OptionalFloat


class ClassifierMetrics(Metrics):
    """Metrics of a classifier; with K > 2 labels, means over the labels, one against the rest.

    Attributes:
        thresholds: metrics per probability threshold, rising; empty unless there are two labels.
        roc: points of the ROC curve, from no record predicted positive to all; for two labels.
        labels: names of the labels; of two, the positive one is second.
        records: number of measured records; with noisy counts, an estimate.
        auc: area under the ROC curve; 0.5 is chance.
        average_precision: mean precision over all thresholds, weighted by the gain in recall.
        recall: share of the records with the label that are predicted to have it; None if none has.
        precision: share of the predictions of the label that are right; None if there is none.
        log_loss: mean of −ln of the true label's probability; None if there are only scores.
        brier: mean squared error of the probabilities; None if there are only scores.
        calibration: predicted and observed frequencies; empty if there are only scores.
        confusion: records by true label (row) and predicted label (column).
        by_label: recall and precision per label, from noisy counts of K > 2 labels.
    """

    labels: tuple[str, ...]
    records: Number
    auc: OptionalFloat = None
    average_precision: OptionalFloat = None
    recall: OptionalFloat = None
    precision: OptionalFloat = None
    log_loss: OptionalFloat = None
    brier: OptionalFloat = None
    calibration: tuple[CalibrationBin, ...] = ()
    confusion: tuple[tuple[Number, ...], ...]
    thresholds: tuple[ThresholdMetrics, ...] = ()
    roc: tuple[RocPoint, ...] = ()
    by_label: tuple[LabelMetrics, ...] = ()

    @property
    def correct_records(self) -> Number:
        """Number of records that are predicted correctly."""
        return sum(row[at] for at, row in enumerate(self.confusion))

    @property
    def accuracy(self) -> float:
        """Share of records that are predicted correctly."""
        return self.correct_records / self.records

    @property
    def most_common_label(self) -> tuple[str, Number]:
        """The most common label, and its number of records."""
        counts = [sum(row) for row in self.confusion]
        return self.labels[counts.index(max(counts))], max(counts)

    @property
    def predicted_labels(self) -> tuple[str, ...]:
        """The labels that are predicted for at least one record."""
        given = (sum(column) for column in zip(*self.confusion, strict=True))
        return tuple(name for name, count in zip(self.labels, given, strict=True) if count)


class RegressionMetrics(JsonRecord):
    """Metrics of a regression, in units of the scaled target, which is in [−1, 1].

    Attributes:
        records: number of measured records.
        rmse: root of the mean squared error.
        r2: share of the target's variance that the model explains; None if all targets are equal.
    """

    records: int
    rmse: float
    r2: OptionalFloat
