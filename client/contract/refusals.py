"""The reasons for which a party declines a request.

A refusal depends only on policy, ledger, plan and public facts. Its `Reason` is a class and
contains no data.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from functools import partial

from parley.safe_io.error_translation import translate_errors


class Reason(StrEnum):
    """Reason of a party's refusal."""

    UNKNOWN_DATASET = "unknown-dataset"
    DATA_UNREADABLE = "data-unreadable"
    SCHEMA = "schema"
    SIZES_NOT_DISCLOSED = "sizes-not-disclosed"
    VERSION = "version"
    CLOCK_SKEW = "clock-skew"
    UNKNOWN_SESSION = "unknown-session"
    WRONG_RUN = "wrong-run"
    COHORT_TOO_SMALL = "cohort-too-small"
    UNIT = "unit"
    NEIGHBOURING = "neighbouring"
    MECHANISM = "mechanism"
    CALIBRATION = "calibration"
    SEEDED_NOISE = "seeded-noise"
    ALGORITHM = "algorithm"
    MODEL = "model"
    SENSITIVITY = "sensitivity"
    TOO_FEW_RECORDS = "too-few-records"
    BUDGET_EXHAUSTED = "budget-exhausted"
    RECORD_BOUND = "record-bound"
    GRID = "grid"
    DEGENERATE = "degenerate"
    PLAN_CHANGED = "plan-changed"
    OTHER_SURVIVORS = "other-survivors"
    WAITING = "waiting-for-approval"
    REFUSED = "refused-by-owner"
    LAPSED = "approval-lapsed"
    PROTOCOL = "protocol"
    BUSY = "busy"
    ERROR = "error"


class Declined(Exception):
    """The party's refusal. Only `reason` leaves its machine; `detail` is for its own log.

    Attributes:
        reason: a class, decided only by policy, plan and public facts.
        detail: what was expected and what came; never a value of the data, never a secret.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


def decline_errors(
    reason: Reason, kinds: type[Exception] | tuple[type[Exception], ...]
) -> AbstractContextManager[None]:
    """Decline for `reason` in place of an error of these kinds, with its text for the own log."""
    return translate_errors(kinds, partial(Declined, reason))
