"""Who hears how a run goes on: a terminal, a log, a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from parley.client.contract.release_plan import ReleasePlan
from parley.server.jobs.job import Job
from parley.server.records.round_line import RoundLine


class Observer(Protocol):
    """Hears how a run goes on."""

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """The plan stands, data is loaded, `done` rounds were committed before."""

    def round_done(self, line: RoundLine) -> None:
        """A round was committed."""


def tell_stage(observer: Observer | None, stage: str) -> None:
    """Tell an observer what the run does now, if it has a method `stage` that takes it.

    Args:
        stage: One of "reading", "preparing", "baseline" and "report"; `started` begins the rounds.
    """
    take: Callable[[str], None] | None = getattr(observer, "stage", None)
    if take is not None:
        take(stage)
