"""Define the observer of a run's progress: a terminal, a log, a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from parley.client.contract.release_plan import ReleasePlan
from parley.server.jobs.job import Job
from parley.server.records.round_line import RoundLine


class Observer(Protocol):
    """Gets notified of a run's progress."""

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Handle the start: the plan is final, data is loaded, `done` rounds are committed."""

    def round_done(self, line: RoundLine) -> None:
        """Handle a committed round."""


def tell_stage(observer: Observer | None, stage: str) -> None:
    """Notify an observer of the run's current stage, if it has a method `stage`.

    Args:
        stage: One of "reading", "preparing", "baseline" ("measuring" without a baseline) and
            "report"; `started` begins the rounds.
    """
    take: Callable[[str], None] | None = getattr(observer, "stage", None)
    if take is not None:
        take(stage)


def tell_rows(observer: Observer | None, source: str, rows: int) -> None:
    """Notify an observer of the number of records read so far, if it has a method `reading`."""
    take: Callable[[str, int], None] | None = getattr(observer, "reading", None)
    if take is not None:
        take(source, rows)
