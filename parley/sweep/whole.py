"""A sweep from its file to its page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from parley.server.records.run import framed
from parley.sweep.cells import MOST_CELLS, load_sweep
from parley.sweep.figures import draw
from parley.sweep.page import cost_text, write_page
from parley.sweep.results import Row, summarised, write_results
from parley.sweep.running import Progress, run_cells


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep left: folder, page, a row a run, and what all would cost on real records.

    `errors` are of the cells that failed, each once.
    """

    folder: Path
    page: Path
    rows: list[Row]
    cost: str
    errors: tuple[str, ...]

    def _repr_html_(self) -> str:
        """What a notebook shows: how many runs, what they would cost, and the page."""
        failed = f", {len(self.errors)} kinds of error" if self.errors else ""
        text = f"{len(self.rows)} runs{failed}, simulation only. {self.cost}"
        return f"<p>{escape(text)}</p>{framed(self.page, 'Figures and table')}"


def run_sweep(
    file: str | Path,
    *,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    workers: int | None = None,
    most: int | None = MOST_CELLS,
    observe: Callable[[Progress], None] = lambda progress: None,
) -> SweepResult:
    """Runs the cells of a sweep file that are not done yet, and writes results, figures and page.

    Args:
        out: folder of the results; default `sweeps/NAME`.
        overrides: `key=value` of the job that all cells share.
        workers: processes; default one a core that this process may use.
        most: cells that the sweep may have; None for any number.
        observe: called after every cell.

    Raises:
        JobError: a sweep that can't be read, or has more cells.
        OSError: the folder can't be written.
    """
    path = Path(file)
    sweep = load_sweep(path, overrides=overrides, most=most)
    folder = Path(out) if out is not None else Path("sweeps") / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    rows = run_cells(sweep, folder, workers=workers or cores, observe=observe)
    write_results(rows, sweep.axes, folder)
    figures = draw(summarised(rows, sweep.axes), folder / "figures", non_private=sweep.non_private)
    page = write_page(rows, sweep.axes, figures, folder, title=path.stem)
    failed = [str(row["error"]) for row in rows if row["status"] == "failed"]
    errors = tuple(dict.fromkeys(failed))
    return SweepResult(folder=folder, page=page, rows=rows, cost=cost_text(rows), errors=errors)
