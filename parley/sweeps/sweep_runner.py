"""Run the cells of a sweep: data prepared once, cells in processes of one thread each.

A sweep's folder holds `data/KEY` (prepared rows, as confidential as the data), `cells/NAME` (a run
folder and a row each), and the results. A cell that has its row is not run again, so a sweep
resumes after a kill. A failed cell is run again. `run_sweep` does all from the file to the page.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from parley.client.data.data_error import DataError
from parley.client.data.schema import SchemaError
from parley.presentation.page_registry import write_page
from parley.presentation.short_layout import MAX_LINES, Row, format_rows
from parley.safe_io.file_writing import write_file
from parley.server.jobs.job import Job
from parley.server.jobs.machine_references import find_code_references
from parley.server.jobs.section_base import JobError
from parley.server.records.run_result import build_report_frame
from parley.simulations.data.experiment_loading import prepare_data
from parley.simulations.data.partitions import PartitionError
from parley.simulations.data.prepared_data import compute_data_key
from parley.simulations.data.row_cache import cache_rows_at, find_shared_path
from parley.sweeps.cell_worker import CellTask, begin_process, read_row, run_cell
from parley.sweeps.latex_table import format_latex_table
from parley.sweeps.sweep_cells import MAX_CELLS, Sweep, SweepCell, load_sweep
from parley.sweeps.sweep_page import format_total_cost
from parley.sweeps.sweep_plots import draw_figures
from parley.sweeps.sweep_summary import Row as ResultRow
from parley.sweeps.sweep_summary import format_scope, summarise_rows, write_results
from parley.sweeps.sweep_table import (
    CHARGED_MORE_MARK,
    build_columns,
    build_grid,
    check_metric,
    choose_metric,
    format_table,
)
from parley.version import __version__

_MAX_FOLDER = 60
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
_MAX_NAMED_ROWS = 4
"""Maximum number of rows of a table that are named with their adversary below it."""


class SweepStopped(RuntimeError):
    """A sweep that could not continue. Finished cells are kept."""


@dataclass(frozen=True, kw_only=True)
class SweepProgress:
    """Progress of a sweep, in cells. Of the done ones, some were `kept` from before and some
    failed.

    `row` is the row of the cell that ended last, or None before the first.
    """

    done: int
    total: int
    kept: int
    failed: int
    row: ResultRow | None


def run_cells(
    sweep: Sweep,
    folder: Path,
    *,
    workers: int,
    observe: Callable[[SweepProgress], None] = lambda progress: None,
) -> list[ResultRow]:
    """Run all unfinished cells, and return the rows of all cells in order.

    Raises:
        JobError: workers < 1, or an engine of other processes.
        SweepStopped: a process was killed.
    """
    if workers < 1:
        raise JobError(f"Expected at least one worker, got {workers}.")
    for cell in sweep.cells:
        if cell.job is not None and (not cell.job.run.is_one_process or cell.job.privacy.ledger):
            raise JobError(
                "Expected run.engine = 'fast' and no privacy.ledger in a sweep: its cells are "
                "simulations, and each has its own ledger."
            )
    cells = {cell.name: cell for cell in sweep.cells}
    places = _locate_prepared_data(cells.values(), folder)
    rows: dict[str, ResultRow] = {}
    for name, cell in cells.items():
        if cell.job is None:
            rows[name] = _build_failed_row(cell, cell.error)
        elif known := read_row(folder / "cells" / name, name=name, data=places[name].name):
            rows[name] = known
    kept = sum(row["status"] != "failed" for row in rows.values())

    def tell(row: ResultRow | None) -> None:
        failed = sum(each["status"] == "failed" for each in rows.values())
        observe(SweepProgress(done=len(rows), total=len(cells), kept=kept, failed=failed, row=row))

    tell(None)
    left = [cell for name, cell in cells.items() if name not in rows]
    tasks = _prepare_tasks(left, folder, rows, places, aggregated="aggregated" in sweep.non_private)
    for name, row in _run_tasks(tasks, workers, in_script=any(map(_is_in_script, left))):
        rows[name] = row
        tell(row)
    return [{**rows[cell.name], **cell.values} for cell in sweep.cells]


def _locate_prepared_data(cells: Iterable[SweepCell], folder: Path) -> dict[str, Path]:
    """Return the folder of each cell's prepared data: `run.prepared` if the job names it."""
    known, places = dict[tuple[str, str], Path](), {}
    for cell in cells:
        if (job := cell.job) is not None:
            key = compute_data_key(job), job.run.prepared
            if key not in known:  # the shared place is a digest of whole files
                known[key] = _get_data_folder(job, folder)
            places[cell.name] = known[key]
    return places


def _get_data_folder(job: Job, folder: Path) -> Path:
    own = hashlib.sha256(compute_data_key(job).encode()).hexdigest()[:24]
    return find_shared_path(job) or folder / "data" / own


def _build_row(cell: SweepCell) -> ResultRow:
    return {**cell.values, "repetition": cell.repetition, "cell": cell.name}


def _build_failed_row(cell: SweepCell, error: str) -> ResultRow:
    return _build_row(cell) | {"status": "failed", "error": error}


def _prepare_tasks(
    cells: list[SweepCell],
    folder: Path,
    rows: dict[str, ResultRow],
    data_folders: Mapping[str, Path],
    *,
    aggregated: bool,
) -> Iterator[CellTask]:
    """Prepare the data and return the cells' tasks. A cell without data fails into `rows`."""
    faults: dict[Path, str] = {}
    able = [(cell.job, cell) for cell in cells if cell.job is not None]
    # Run one repetition of all cells before the next one, so that a stop leaves balanced results.
    for job, cell in sorted(able, key=lambda each: (compute_data_key(each[0]), each[1].repetition)):
        place = data_folders[cell.name]
        if place not in faults:
            faults[place] = _prepare(job, place, folder)
        if faults[place]:
            rows[cell.name] = _build_failed_row(cell, faults[place])
            continue
        yield CellTask(
            name=cell.name,
            row=_build_row(cell),
            job=job,
            folder=folder / "cells" / cell.name,
            prepared=place,
            aggregated=aggregated,
        )


def _prepare(job: Job, data_folder: Path, folder: Path) -> str:
    """Return why a job's data cannot be prepared, or an empty text."""

    def is_unchanged() -> bool:
        return _get_data_folder(job, folder) == data_folder

    try:
        cache_rows_at(data_folder, partial(prepare_data, job), is_unchanged)
    except (JobError, DataError, SchemaError, PartitionError) as error:
        return str(error)
    return ""


def _is_in_script(cell: SweepCell) -> bool:
    """Return whether a cell's code is defined in the caller's script, as "__main__:name"."""
    named = [] if cell.job is None else find_code_references(cell.job)
    return any(each.value.startswith("__main__:") for each in named)


@contextmanager
def _hide_main_module() -> Iterator[None]:
    """Start processes that do not import the caller's script: it would sweep again in each."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run_tasks(
    tasks: Iterator[CellTask], workers: int, *, in_script: bool = False
) -> Iterator[tuple[str, ResultRow]]:
    """Yield each task's name and row, as they end.

    Args:
        in_script: whether the processes need the caller's script.
    """
    others = set(multiprocessing.active_children())
    with _limit_threads():
        pool = ProcessPoolExecutor(
            workers, mp_context=multiprocessing.get_context("spawn"), initializer=begin_process
        )
        waiting: dict[Future[ResultRow], CellTask] = {}
        try:
            for task in tasks:
                with nullcontext() if in_script else _hide_main_module():
                    started = pool.submit(run_cell, task)
                waiting[started] = task
                if len(waiting) >= 2 * workers:
                    yield from _collect_ended(waiting)
            while waiting:
                yield from _collect_ended(waiting)
        except BrokenProcessPool as error:
            raise SweepStopped(
                "A process of the sweep was ended from outside, perhaps for want of memory: the "
                "same command with fewer --workers resumes it."
            ) from error
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _collect_ended(waiting: dict[Future[ResultRow], CellTask]) -> Iterator[tuple[str, ResultRow]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        task = waiting.pop(future)
        yield task.name, future.result()


@contextmanager
def _limit_threads() -> Iterator[None]:
    """Limit processes that start inside this context to one thread each."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """Result of a sweep: folder, page, a row per run, and the cost of all runs on real records.

    `errors` lists each error of the failed cells once. `metric` is the one of the tables; None for
    accuracy, R² or loss.
    """

    folder: Path
    page: Path
    rows: list[ResultRow]
    cost: str
    errors: tuple[str, ...]
    axes: tuple[str, ...] = ()
    metric: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings of the runs, each once."""
        return tuple(dict.fromkeys(text for row in self.rows for text in row.get("warnings", ())))

    @property
    def table(self) -> dict[str, list[Any]]:
        """Means and half-widths per cell, a list per column: `pandas.DataFrame(result.table)`."""
        return build_columns(self.rows, self.axes)

    def list_lines(self) -> list[str]:
        """Return at most 15 lines: a table of one metric, and where the rest is."""
        shown = choose_metric(self.rows, self.metric)
        seeds = "" if not self.rows else f"{shown}, mean ± 95% over repetitions, simulation only"
        files = f"{self.page.name}, results.csv, results.tex, figures/"
        grid = build_grid(self.rows, self.axes)
        ended = [row for row in self.rows if row["status"] != "failed"]
        named = grid.labelled_axes if len(grid.labels) <= _MAX_NAMED_ROWS else ()
        beyond = grid.format_charged_more()
        footer = format_rows(
            [
                Row("", seeds),
                Row("", f"{CHARGED_MORE_MARK} {beyond}" if beyond else ""),
                Row("Protects", format_scope(ended, named) if ended else ""),
                Row("Noise", "drawn from seeds: it protects nobody (-v: cost on real records)"),
                *(Row("Note", text, rank=1) for text in self.notes[:1]),
                Row("Saved", f"{self.folder} ({files})", whole=True),
            ]
        )
        return [*format_table(grid, self.rows, shown, max_lines=MAX_LINES - len(footer)), *footer]

    def __repr__(self) -> str:
        ended = sum(row["status"] != "failed" for row in self.rows)
        folder = str(self.folder)
        shown = folder if len(folder) <= _MAX_FOLDER else f"…{folder[1 - _MAX_FOLDER :]}"
        return f"<Sweep {ended} of {len(self.rows)} runs, folder={shown!r}>"

    def __str__(self) -> str:
        return "\n".join(self.list_lines())

    def _repr_html_(self) -> str:
        """Return the table and the page, folded, for a notebook."""
        return f"<pre>{escape(str(self))}</pre>{build_report_frame(self.page, 'Figures and table')}"


def run_sweep(
    file: str | Path,
    *,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] = MappingProxyType({}),
    workers: int | None = None,
    most: int | None = MAX_CELLS,
    metric: str | None = None,
    observe: Callable[[SweepProgress], None] = lambda progress: None,
) -> SweepResult:
    """Run the unfinished cells of a sweep file, and write results, figures and page.

    Args:
        out: folder of the results; default `sweeps/NAME`.
        overrides: `key=value` of the job that all cells share.
        values: the same by dotted key.
        workers: processes; default one per core that this process may use.
        most: maximum number of cells; None for any number.
        metric: the one in the tables, such as "auc"; default accuracy, R² or loss.
        observe: called after every cell.

    Raises:
        JobError: the sweep is not valid, or has too many cells.
        OSError: the folder cannot be written.
    """
    path = Path(file)
    sweep = load_sweep(path, overrides=overrides, values=values, max_cells=most)
    folder = Path(out) if out is not None else Path("sweeps") / path.stem
    return run_sweep_cells(
        sweep, folder, title=path.stem, workers=workers, metric=metric, observe=observe
    )


def run_sweep_cells(
    sweep: Sweep,
    folder: Path,
    *,
    title: str = "sweep",
    workers: int | None = None,
    metric: str | None = None,
    observe: Callable[[SweepProgress], None] = lambda progress: None,
) -> SweepResult:
    """Run a sweep's cells and write its results, tables, figures and page into the folder.

    Raises:
        JobError: no such metric.
    """
    check_metric(metric)
    folder.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    rows = run_cells(sweep, folder, workers=workers or cores, observe=observe)
    write_results(rows, sweep.axes, folder)
    grid, shown = build_grid(rows, sweep.axes), choose_metric(rows, metric)
    table = format_latex_table(grid, rows, shown, title=title, version=__version__)
    write_file(folder / "results.tex", table)
    figures = draw_figures(
        summarise_rows(rows, sweep.axes), folder / "figures", non_private=sweep.non_private
    )
    page = write_page("sweep", folder / "sweep.html", rows, sweep.axes, figures, title=title)
    failed = [str(row["error"]) for row in rows if row["status"] == "failed"]
    return SweepResult(
        folder=folder,
        page=page,
        rows=rows,
        axes=sweep.axes,
        metric=metric,
        cost=format_total_cost(rows),
        errors=tuple(dict.fromkeys(failed)),
    )
