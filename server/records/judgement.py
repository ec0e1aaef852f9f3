"""How good a model is on held-out records, as a summary keeps it; known to a simulation alone."""

from __future__ import annotations

from parley.server.records.facts import Facts, Figure


class CalibrationBin(Facts):
    """Records with about the same probability: its mean, and how often it came true."""

    predicted: float
    observed: float
    records: int


class Judgement(Facts):
    """A classifier's figures; with K > 2 labels means over the labels, each against the rest.

    Attributes:
        labels: their names; of two the positive one is second.
        recall, precision: of the decisions; None where there is nothing to divide by.
        log_loss, brier, calibration: of probabilities; None and empty where there are only scores.
        confusion: records by true label (row) and predicted label (column).
    """

    labels: tuple[str, ...]
    records: int
    auc: Figure
    average_precision: Figure
    recall: Figure
    precision: Figure
    log_loss: Figure
    brier: Figure
    calibration: tuple[CalibrationBin, ...]
    confusion: tuple[tuple[int, ...], ...]


class TargetJudgement(Facts):
    """A regression's figures: in units of the scaled target, which lies in [−1, 1]."""

    records: int
    rmse: float
    r2: Figure
