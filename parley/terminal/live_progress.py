"""Show live progress of a run in the terminal."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from parley.client.algorithms.registry import get_title
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.server.statements import guarantee_text
from parley.server.statements.number_format import format_epsilon
from parley.terminal.heartbeat import Heartbeat, format_short_duration
from parley.terminal.rich_output import Screen, guard_redirected

if TYPE_CHECKING:
    from rich.console import RenderableType

    from parley.client.contract.release_plan import ReleasePlan
    from parley.server.jobs.job import Job
    from parley.server.records.round_line import RoundLine

_LOST = {"declined", "dropped"}

_STAGES = {
    "reading": "reading the records",
    "preparing": "planning the rounds and checking the model",
    "baseline": "training the non-private baseline (run.baseline = false skips it)",
    "measuring": "measuring the model on held-out records",
    "report": "writing the report",
}
"""Stage of `run_observer.tell_stage` → what the run does in it."""

_MIN_LEFT_S = 5.0
"""Time left from which it is estimated."""


class RunDisplay:
    """Live progress on stderr; a context manager and an `Observer`."""

    def __init__(
        self,
        *,
        quiet: bool,
        verbose: bool = True,
        farewell: Callable[[KeyboardInterrupt], str] | None = None,
        name: str = "",
    ) -> None:
        """Create a display; `farewell` explains how to resume an interrupted run.

        Args:
            name: Name of a run on a server. Lines with the time of day report when it was queued
                and when it started.
            verbose: Also print what the run will do before it starts.
        """
        self._farewell, self._verbose, self._name = farewell, verbose, name
        self._console = Screen(stderr=True, quiet=quiet)
        self._beats = None
        if not quiet and not _can_draw_bar(self._console):
            self._beats = Heartbeat(
                lambda line: self._console.print(line, soft_wrap=True),
                read_time=lambda: time.strftime("%H:%M:%S"),
            )
        self._rounds = self._done = self._begun = 0
        self._spent = ""
        self._began = time.monotonic()
        self._plain = ""
        text = partial(TextColumn, markup=False)
        cut = partial(Column, no_wrap=True, overflow="ellipsis")
        self._progress = _MarkedProgress(
            text("{task.description}", style="bold", table_column=cut(min_width=9)),
            BarColumn(bar_width=12),
            _RoundsColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(min_width=7, no_wrap=True)),
            # On a narrow terminal these are what is cut.
            text("{task.fields[figures]}", table_column=cut()),
            console=self._console,
            transient=True,
        )
        self._folder: Path | None = None
        self._accuracy = self._loss = ""
        self._scopes: list[str] = []
        self._budgets: list[str] = []
        self._announced: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        if self._beats is None:
            self._progress.start()
            guard_redirected()
        self._task = self._progress.add_task("starting", total=None, figures="")
        if self._beats is not None:
            self._beats.start()
        self._report_time("queued")
        return self

    def _report_time(self, event: str) -> None:
        if self._name:
            line = f"{time.strftime('%H:%M:%S')} {self._name}: {event}"
            self._console.print(line, soft_wrap=True)

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if self._beats is not None:
            self._beats.stop()
            if error is None and self._rounds:
                self._note_rounds(self._beats)
                self._beats.emit()
        else:
            self._progress.stop()
        if not isinstance(error, KeyboardInterrupt):
            return
        if self._farewell is not None:
            # Whole lines: a command that is broken over two cannot be copied.
            self._console.print(self._farewell(error), style="yellow", soft_wrap=True)
        elif self._folder:
            self._console.print(
                f"Stopped after the last committed round. Continue with:\n"
                f"  parley run --resume {shlex.quote(str(self._folder))}",
                style="yellow",
                soft_wrap=True,
            )

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Show what is about to happen."""
        self._folder = folder
        self._report_time("started")
        own, title = plan.primary, get_title(job.algorithm.kind)
        self._scopes = [guarantee_text.format_unit(of) for of in plan.guarantees]
        if self._verbose:
            self._print_plan(job, plan, title)
        if own.delta > job.privacy.delta:
            self._console.print(
                f"δ = {format_exact(job.privacy.delta)} becomes δ = "
                f"{format_rounded_up(own.delta, 3)}: "
                "the distance of the rounded l2-laplace sampler. laplace-l1 keeps δ = 0.",
                style="yellow",
            )
        if plan.parties == 1:
            self._console.print(
                "One party is the centralised case: its own contribution is the sum, only the "
                "noise protects its records.",
                style="yellow",
            )
        if done:
            self._console.print(f"Resuming after round {done}.", style="dim")
        self._rounds, self._done, self._begun = job.rounds, done, done
        self._budgets = [format_exact(asked.epsilon) for asked in job.budgets]
        self._began = time.monotonic()
        self._progress.update(self._task, total=job.rounds, completed=done)
        self.stage("rounds")
        if self._beats is not None:
            self._beats.emit()

    def _print_plan(self, job: Job, plan: ReleasePlan, title: str) -> None:
        seeded = " · seeded noise (simulation only, protects nobody)" if plan.seeded else ""
        self._console.print(
            f"{plan.parties} {'party' if plan.parties == 1 else 'parties'} · {title} · "
            f"{job.model.kind} · d = {plan.parameters}{seeded}",
            style="dim",
        )
        for of, asked in zip(plan.guarantees, job.budgets, strict=True):
            clip = "" if of is plan.primary else f" on updates clipped to {of.clip_norm:g}"
            self._console.print(
                f"budget {guarantee_text.format_allowed(asked.epsilon, asked.delta)}, "
                f"{guarantee_text.format_scope(of)} · {of.mechanism.law} noise{clip}",
                style="dim",
            )

    def reading(self, source: str, rows: int) -> None:
        """Show how many records were read so far."""
        found = f"{to_one_line(Path(source).name)}: {rows:,} {format_noun(rows, 'row')}"
        self._progress.update(self._task, description="reading", figures=f"reading {found}")
        if self._beats is not None:
            self._beats.note(f"reading {found}")

    def stage(self, name: str, *, figures: str | None = None, waiting: str = "") -> None:
        """Show the current stage of the run, and the parties that it waits for."""
        if figures is not None:
            self._plain = figures
        text = _STAGES.get(name, "")
        if text and figures is None:
            self._progress.mark = self._plain = ""
        shown = " · ".join(part for part in (waiting, text, self._plain) if part)
        self._progress.update(self._task, description=name, figures=shown)
        if self._beats is None:
            return
        if name == "rounds":
            self._note_rounds(self._beats)
        else:
            far = f"{self._done} of {self._rounds} rounds" if self._rounds and not text else ""
            self._beats.note(text or name, far, waiting=waiting)

    def _note_rounds(self, beats: Heartbeat) -> None:
        """Note how far the rounds are, what they spent, and about how long the others take."""
        done, left = self._done - self._begun, self._rounds - self._done
        seconds = (time.monotonic() - self._began) / done * left if done else 0.0
        about = f"about {format_short_duration(seconds)} left" if seconds >= _MIN_LEFT_S else ""
        figures = "  ".join(part for part in (self._spent, about) if part)
        beats.note(f"round {self._done}/{self._rounds}", figures)

    def parties(self, board: dict[str, Any]) -> None:
        """Show the states of the parties of real processes: each of a few, or how many."""
        from parley.terminal import party_states  # noqa: PLC0415 - spares its code for a simulation

        parties = board["parties"]
        shown, waiting = party_states.format_states(parties), party_states.format_waiting(parties)
        self.stage(board["stage"], figures=shown, waiting=waiting)
        for party in parties:
            if party["state"] in _LOST and (party["name"], board["round"]) not in self._announced:
                self._announced.add((party["name"], board["round"]))
                where = f"round {board['round']}" if board["round"] else "before the first round"
                self._console.print(f"{party_states.format_state(party)}, {where}", style="yellow")

    def round_done(self, line: RoundLine) -> None:
        """Advance the bar. Loss and accuracy are marked as the simulation's."""
        figures = line.simulation_only
        if figures:
            accuracy = figures.get("accuracy")
            known = "" if accuracy is None else f"accuracy {accuracy:.3f} (simulation only)"
            self._accuracy = known
            loss = "diverged" if figures["loss"] is None else f"{figures['loss']:.4f}"
            self._loss = f"loss {loss} (simulation only)"
        clipped = "" if line.clipped_fraction is None else f"clipped {line.clipped_fraction:.2f}"
        self._done, self._spent = line.round, self._format_spent(line)
        self._progress.mark = f"ε is what was spent so far, {guarantee_text.FIXED_RELEASES_NOTE}"
        self._progress.update(self._task, completed=line.round)
        # A narrow terminal cuts the line from the right, so ε comes first.
        parts = (self._spent, self._accuracy, clipped, self._loss)
        self.stage("rounds", figures=" · ".join(part for part in parts if part))

    def _format_spent(self, line: RoundLine) -> str:
        """Return what each guarantee spent so far."""
        several = len(line.guarantees) > 1
        return " · ".join(
            f"ε = {format_epsilon(of.epsilon_charged)} of {budget}{f' {scope}' if several else ''}"
            for of, budget, scope in zip(line.guarantees, self._budgets, self._scopes, strict=True)
        )


class _MarkedProgress(Progress):
    """A bar with a line below it that explains its ε. Both vanish when the run ends.

    Attributes:
        mark: the line below the bar; empty if the bar shows no ε.
    """

    mark = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar and its mark."""
        yield from super().get_renderables()
        if self.mark:
            yield Text(self.mark, style="dim", no_wrap=True, overflow="ellipsis")


class _RoundsColumn(MofNCompleteColumn):
    """Number of rounds done, of all. Empty before rounds are counted."""

    def render(self, task: Task) -> Text:
        """Return the text of one task."""
        return super().render(task) if task.total is not None else Text("")


def _can_draw_bar(console: Screen) -> bool:
    """Return whether a bar is visible: on a terminal that can move its cursor, even if colour is
    forced.
    """
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
