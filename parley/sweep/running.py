"""Runs the cells of a sweep: data prepared once, cells in processes of one thread each.

The folder of a sweep holds `data/KEY` (prepared rows: as closed as the data), `cells/NAME` (a run
folder and its row each), and the results. A cell that has its row is not run again, so that a sweep
goes on after a kill; one that failed is tried again.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.client.data.schema import SchemaError
from parley.client.data.table import DataError
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.simulations.data.experiment import prepared_data
from parley.simulations.data.keeping import keep_at, shared_place
from parley.simulations.data.partitions import PartitionError
from parley.simulations.data.prepared import data_key
from parley.sweep.cells import Cell, Sweep
from parley.sweep.worker import Task, begin_process, read_row, run_cell

Row = dict[str, Any]
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


class SweepStopped(RuntimeError):
    """A sweep that could not go on; what it ran is kept."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done, total: cells; `kept` of the done ones were run before.
        failed: of the done ones.
        row: of the cell that ended last; None before the first.
    """

    done: int
    total: int
    kept: int
    failed: int
    row: Row | None


def run_cells(
    sweep: Sweep,
    folder: Path,
    *,
    workers: int,
    observe: Callable[[Progress], None] = lambda progress: None,
) -> list[Row]:
    """Runs what is not done yet, and gives the rows of all cells in their order.

    Args:
        sweep: what to run.
        folder: its folder, made where there is none.
        workers: processes.
        observe: called after every cell.

    Raises:
        JobError: workers < 1, or an engine of other processes.
        SweepStopped: a process was killed.
        OSError: the folder can't be written.
    """
    if workers < 1:
        raise JobError(f"Expected at least one worker, got {workers}.")
    for cell in sweep.cells:
        if cell.job is not None and (not cell.job.run.here or cell.job.privacy.ledger):
            raise JobError(
                "Expected run.engine = 'fast' and no privacy.ledger in a sweep: its cells are "
                "simulations, and each has its own ledger."
            )
    rows: dict[str, Row] = {}
    places = _places(sweep.cells, folder)
    for cell in sweep.cells:
        if cell.job is None:
            rows[cell.name] = _refused(cell, cell.error)
        elif known := read_row(
            folder / "cells" / cell.name, name=cell.name, data=places[cell.name].name
        ):
            rows[cell.name] = known
    kept = sum(row["status"] != "failed" for row in rows.values())
    total = len({cell.name for cell in sweep.cells})

    def tell(row: Row | None) -> None:
        failed = sum(each["status"] == "failed" for each in rows.values())
        observe(Progress(done=len(rows), total=total, kept=kept, failed=failed, row=row))

    tell(None)
    # Two positions of the grid may be one run: a method whose own settings win over the grid's.
    left = {cell.name: cell for cell in sweep.cells if cell.name not in rows}
    aggregated = "aggregated" in sweep.non_private
    tasks = _tasks(list(left.values()), folder, rows, places, aggregated=aggregated)
    for name, row in _ran(tasks, workers):
        rows[name] = row
        tell(row)
    return [{**rows[cell.name], **cell.values} for cell in sweep.cells]


def _places(cells: Sequence[Cell], folder: Path) -> dict[str, Path]:
    """Where the prepared data of every cell are: in `run.prepared`, if the job names it."""
    known, places = dict[tuple[str, str], Path](), {}
    for cell in cells:
        if (job := cell.job) is None:
            continue
        key = data_key(job), job.run.prepared
        if key not in known:  # the shared place is a digest of whole files
            known[key] = _place(job, folder)
        places[cell.name] = known[key]
    return places


def _place(job: Job, folder: Path) -> Path:
    own = hashlib.sha256(data_key(job).encode()).hexdigest()[:24]
    return shared_place(job) or folder / "data" / own


def _refused(cell: Cell, error: str) -> Row:
    return {
        **cell.values,
        "repetition": cell.repetition,
        "cell": cell.name,
        "status": "failed",
        "error": error,
    }


def _tasks(
    cells: list[Cell],
    folder: Path,
    rows: dict[str, Row],
    places: Mapping[str, Path],
    *,
    aggregated: bool,
) -> Iterator[Task]:
    """The tasks of the cells, their data prepared; a cell without data fails into `rows`."""
    faults: dict[Path, str] = {}
    # One data set after the other, so that a process seldom maps another; a repetition of all
    # cells before the next one, so that what is there after a stop is balanced.
    for cell in sorted(
        cells, key=lambda cell: (data_key(cell.job) if cell.job else "", cell.repetition)
    ):
        if cell.job is None:
            continue
        place = places[cell.name]
        if place not in faults:
            faults |= _prepare(cell.job, place, folder)
        if place in faults:
            rows[cell.name] = _refused(cell, faults[place])
            continue
        yield Task(
            name=cell.name,
            values=cell.values,
            repetition=cell.repetition,
            job=cell.job,
            folder=folder / "cells" / cell.name,
            prepared=place,
            aggregated=aggregated,
        )


def _prepare(job: Job, place: Path, folder: Path) -> dict[Path, str]:
    try:
        keep_at(place, lambda: prepared_data(job), lambda: _place(job, folder) == place)
    except (JobError, DataError, SchemaError, PartitionError) as error:
        return {place: str(error)}
    return {}


def _ran(tasks: Iterator[Task], workers: int) -> Iterator[tuple[str, Row]]:
    """Every task's name and row, as they end."""
    others = set(multiprocessing.active_children())
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            workers, mp_context=multiprocessing.get_context("spawn"), initializer=begin_process
        )
        waiting: dict[Future[Row], Task] = {}
        try:
            for task in tasks:
                waiting[pool.submit(run_cell, task)] = task
                if len(waiting) >= 2 * workers:
                    yield from _ended(waiting)
            while waiting:
                yield from _ended(waiting)
        except BrokenProcessPool as error:
            raise SweepStopped(
                "A process of the sweep was ended from outside, perhaps for want of memory: the "
                "same command with fewer --workers goes on where it stopped."
            ) from error
        except BaseException:
            # A cell has its row at its end, or none: those that run are begun again another time.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _ended(waiting: dict[Future[Row], Task]) -> Iterator[tuple[str, Row]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        task = waiting.pop(future)
        yield task.name, future.result()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are begun in here compute with one thread each."""
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
