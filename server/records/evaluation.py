"""How good a model is on held-out records, as a summary keeps it: one form, exact or with noise.

Of records that a simulation, or a server's public test, looks at the figures are exact. Of noisy
counts (`parley.server.records.histogram_evaluation`) every figure has an interval: `within`.
"""

from __future__ import annotations

from parley.server.records.json_record import JsonRecord, OptionalFloat

Interval = tuple[float, float]
"""Between which ends a figure lies on the same records without noise."""

Number = int | float
"""Of records; not whole where it is noisy."""


class Metrics(JsonRecord):
    """Figures; `within`: name → its interval, at the release's confidence; None: they are exact."""

    within: dict[str, Interval] | None = None


class CalibrationBin(Metrics):
    """Records with about the same probability: its mean, and how often it came true.

    Of noisy counts `predicted` is the middle of an interval of probabilities.
    """

    predicted: float
    observed: float
    records: Number


class ThresholdMetrics(Metrics):
    """What comes of answering the positive label from a probability on.

    Attributes:
        least: that probability.
        positive: the share of all records that it answers so.
        precision, recall: of that answer.
    """

    least: float
    positive: float
    precision: OptionalFloat
    recall: OptionalFloat


class RocPoint(Metrics):
    """The share of negative and of positive records that some threshold answers positive."""

    false_alarms: float
    recall: float


class LabelMetrics(Metrics):
    """Recall and precision of one of K > 2 labels."""

    label: str
    recall: OptionalFloat
    precision: OptionalFloat


class ClassifierMetrics(Metrics):
    """A classifier's figures; with K > 2 labels means over the labels, each against the rest.

    Attributes:
        thresholds: of two labels with probabilities, in rising order; else empty.
        roc: of two labels, from nobody answered positive to everybody.
        labels: their names; of two the positive one is second.
        recall, precision: of the decisions; None where there is nothing to divide by.
        log_loss, brier, calibration: of probabilities; None and empty where there are only scores.
        confusion: records by true label (row) and predicted label (column).
        by_label: of noisy counts of K > 2 labels, in the place of means.
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
        """Records that are answered right."""
        return sum(row[at] for at, row in enumerate(self.confusion))

    @property
    def accuracy(self) -> float:
        """Their share."""
        return self.correct_records / self.records

    @property
    def most_common_label(self) -> tuple[str, Number]:
        """The commonest label, and how many records have it."""
        counts = [sum(row) for row in self.confusion]
        return self.labels[counts.index(max(counts))], max(counts)

    @property
    def predicted_labels(self) -> tuple[str, ...]:
        """The labels that are answered at all."""
        given = (sum(column) for column in zip(*self.confusion, strict=True))
        return tuple(name for name, count in zip(self.labels, given, strict=True) if count)


class RegressionMetrics(JsonRecord):
    """A regression's figures: in units of the scaled target, which lies in [−1, 1]."""

    records: int
    rmse: float
    r2: OptionalFloat
