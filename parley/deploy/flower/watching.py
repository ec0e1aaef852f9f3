"""Following a run that Flower runs: the run folder says how it goes, Flower whether it ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from parley.deploy.flower.control import Control
from parley.deploy.follow import follow
from parley.deploy.processes import ProcessError
from parley.server.jobs.job import Job
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer


def follow_flower(
    folder: Path,
    job: Job,
    *,
    control: Control,
    run: int,
    observer: Observer | None,
    check: Callable[[], None] = lambda: None,
) -> RunSummary:
    """Follows a Flower run to its end and returns its summary.

    Raises:
        what ended the run there, as the class it was; ProcessError where Flower lost it.
    """

    def ended() -> str | None:
        check()
        return _status(control, run)

    return follow(folder, job, ended=ended, observer=observer)


def _status(control: Control, run: int) -> str | None:
    """How the run ended, None while it goes on (or while the SuperLink is restarting)."""
    try:
        found = control.runs(run)
    except ProcessError:
        return None
    return found[0].outcome if found and found[0].finished else None
