"""Report a run to trackers: `--track mlflow:URI`, `--track tensorboard:DIR`.

Metrics that only a simulation may compute are under `simulation-only/`, because no budget covers
them. A tracker and its failures never change the run. The first failure is reported once; after it
no more data is sent.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from parley.client.contract.release_plan import ReleasePlan
from parley.module_loading.plugin_table import PluginTable
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.records.round_line import RoundLine
from parley.server.records.run_result import RunResult
from parley.server.rounds.run_observer import Observer, tell_rows, tell_stage
from parley.server.statements import guarantee_text

ARTEFACTS = ("report.html", "summary.json", "job.toml", "model.safetensors", "schema.toml")
"""Files of a run's folder that a tracker may store."""


class Tracker(Protocol):
    """Destination of metrics. Any exception of it ends the tracking, never the run."""

    def begin(self, name: str, parameters: Mapping[str, str]) -> None:
        """Start tracking: a run begins or resumes."""

    def log_metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Log the finite numbers of a round."""

    def end(self, status: str, artefacts: Sequence[Path]) -> None:
        """Finish tracking: the run ended."""


TRACKERS = PluginTable[Callable[[str], Tracker]](
    {
        "mlflow": "parley.tracking.mlflow:MlflowTracker",
        "tensorboard": "parley.tracking.tensorboard:TensorboardTracker",
    }
)
"""Trackers by the name before the colon of `--track`."""


def open_trackers(specs: Sequence[TrackingObserver | str]) -> list[TrackingObserver]:
    """Open the trackers that `--track NAME:PLACE` names; those that are open stay as they are."""
    made = []
    for place in specs:
        if not isinstance(place, str):
            made.append(place)
            continue
        name, _, where = place.partition(":")
        if name not in TRACKERS or not where:
            raise JobError(
                f"Expected --track {' or '.join(f'{known}:PLACE' for known in TRACKERS)}, such as "
                f"mlflow:http://127.0.0.1:5000 or tensorboard:logs, got {place!r}."
            )
        try:
            shown = f"{name}:{_hide_secrets(where)}"
            made.append(TrackingObserver(place=shown, tracker=TRACKERS[name](where)))
        except ImportError as error:
            raise JobError(
                f"Cannot load the extra of --track {name} ({error}). Install it: python -m pip "
                f"install 'parley[{name}]'."
            ) from error
        except Exception as error:  # an external program may reject a place in any way
            said = next(iter(str(error).splitlines()), "")[:200]
            raise JobError(
                f"Expected a valid place for --track {name}, such as mlflow:http://127.0.0.1:5000 "
                f"or tensorboard:logs, got an error: {_hide_secrets(said)}"
            ) from None
    return made


class TrackingObserver:
    """An observer that passes a run to a tracker and reports a failure once."""

    def __init__(
        self, *, place: str, tracker: Tracker, say: Callable[[str], None] | None = None
    ) -> None:
        self._place, self._tracker, self._open = place, tracker, True
        self._say = say or (lambda text: print(text, file=sys.stderr))

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Report the job's keys."""
        self._try(lambda: self._tracker.begin(folder.name, dict(_list_parameters(job))))

    def round_done(self, line: RoundLine) -> None:
        """Report the round's metrics."""
        self._try(
            lambda: self._tracker.log_metrics(dict(_list_round_metrics(line)), step=line.round)
        )

    def report_end(self, result: RunResult) -> None:
        """Report the summary's metrics, and pass on the existing artefacts."""
        there = [path for name in ARTEFACTS if (path := result.folder / name).is_file()]

        def tell() -> None:
            metrics = dict(_list_run_metrics(result))
            self._tracker.log_metrics(metrics, step=result.summary.rounds_done)
            self._tracker.end(result.summary.status, there)

        self._try(tell)

    def _try(self, tell: Callable[[], None]) -> None:
        if not self._open:
            return
        try:
            tell()
        except Exception as error:  # no error of an external program may end the run
            self._open = False
            said = next(iter(str(error).splitlines()), "")[:200]
            self._say(
                f"{self._place} did not answer ({type(error).__name__}: {_hide_secrets(said)}). "
                "The run continues without tracking; its folder has everything."
            )


class ObserverGroup:
    """Observers that are called one after another."""

    def __init__(self, observer: Observer | None, trackers: Sequence[Observer]) -> None:
        self._observers = [*([] if observer is None else [observer]), *trackers]

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Pass it to each observer."""
        for each in self._observers:
            each.started(job, plan, folder, done)

    def stage(self, name: str) -> None:
        """Pass it to each that takes it."""
        for each in self._observers:
            tell_stage(each, name)

    def reading(self, source: str, rows: int) -> None:
        """Pass it to each that takes it."""
        for each in self._observers:
            tell_rows(each, source, rows)

    def round_done(self, line: RoundLine) -> None:
        """Pass it to each observer."""
        for each in self._observers:
            each.round_done(line)


def _list_parameters(job: Job) -> Iterator[tuple[str, str]]:
    yield "epsilon-is", f"spent so far, {guarantee_text.FIXED_RELEASES_NOTE}"
    for section, keys in job.model_dump(mode="json", by_alias=True).items():
        for key, value in keys.items():
            yield f"{section}.{key}", _hide_secrets(str(value))


def _list_round_metrics(line: RoundLine) -> Iterator[tuple[str, float]]:
    for at, account in enumerate(line.guarantees):
        yield f"epsilon{f'-{at + 1}' if at else ''}", account.epsilon_charged
    if line.clipped_fraction is not None:
        yield "clipped-fraction", line.clipped_fraction
    yield "seconds", line.seconds
    yield from _list_simulation_metrics(line.simulation_only)


def _list_run_metrics(result: RunResult) -> Iterator[tuple[str, float]]:
    summary = result.summary
    for of in summary.guarantees:
        yield f"charged/epsilon-{of.unit}", of.epsilon
        yield f"charged/delta-{of.unit}", of.delta
    names = ("loss", "accuracy", "baseline_loss", "baseline_accuracy", "majority_accuracy")
    yield from _list_simulation_metrics({f"final-{name}": getattr(summary, name) for name in names})


def _list_simulation_metrics(values: Mapping[str, float | None]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield f"simulation-only/{name.replace('_', '-')}", value


def _hide_secrets(text: Any) -> str:
    """Return a text without a URL's user and password, and without values of secret parameters."""
    hidden = re.sub(r"://\S*@", "://…@", str(text))
    return re.sub(r"(?i)((?:pass\w*|pwd|\w*token|\w*secret|\w*key)=)[^&\s'\"]+", r"\1…", hidden)
