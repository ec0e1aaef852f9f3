"""Show a run's progress in a notebook: a bar, ε so far, and the simulation's metrics.

It imports nothing of IPython, because a notebook has imported it already.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.server.statements import guarantee_text

if TYPE_CHECKING:
    from parley.client.contract.release_plan import ReleasePlan
    from parley.server.jobs.job import Job
    from parley.server.records.round_line import RoundLine


def find_notebook_display() -> NotebookDisplay | None:
    """Return a display in a notebook, or None in a script and in a terminal, including
    IPython's.
    """
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        return None
    return NotebookDisplay(sys.modules["IPython.display"])


class NotebookDisplay:
    """An `Observer` that keeps one output cell up to date."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None
        self._rounds = 0
        self._scopes: list[str] = []
        self._figures = ""

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Show the bar."""
        self._rounds = job.rounds
        self._scopes = [guarantee_text.format_scope(of) for of in plan.guarantees]
        self._handle = self._display.display(self._format_html(done, "begins"), display_id=True)

    def round_done(self, line: RoundLine) -> None:
        """Update the bar."""
        parts = [
            f"{guarantee_text.format_epsilon_delta(of.epsilon_charged, of.delta)} ({scope})"
            for of, scope in zip(line.guarantees, self._scopes, strict=True)
        ]
        figures = line.simulation_only
        if figures and figures.get("accuracy") is not None:
            self._figures = f"accuracy {figures['accuracy']:.3f} (simulation only)"
        parts[-1] += f", spent so far, {guarantee_text.FIXED_RELEASES_NOTE}"
        shown = " · ".join([*parts, self._figures] if self._figures else parts)
        if self._handle is not None:  # None in a kernel without a display
            self._handle.update(self._format_html(line.round, shown))

    def _format_html(self, done: int, status: str) -> Any:
        return self._display.HTML(
            f'<progress value="{done}" max="{self._rounds}"></progress> '
            f"round {done} of {self._rounds} · {escape(status)}"
        )
