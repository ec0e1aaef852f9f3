"""Run one cell of a sweep, in a worker process that caches the data of the last cells.

The result is a row of plain values. It is also written to the cell's folder as `row.json`.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from parley.exit_status import get_exit_status
from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.ledger import Ledger
from parley.safe_io.file_reading import read_text
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.printable_text import guard_streams
from parley.server.jobs.job import Job
from parley.server.records.evaluation import ClassifierMetrics
from parley.server.records.run_summary import RunSummary
from parley.simulations.data.experiment_loading import build_experiment
from parley.simulations.data.memory_mapped_rows import load_prepared
from parley.simulations.data.prepared_data import compute_data_key
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.engine.fast_engine import simulate
from parley.sweeps.sweep_summary import Row
from parley.version import __version__


@dataclass(frozen=True, kw_only=True)
class CellTask:
    """A cell to run.

    Attributes:
        row: first values of its row: values of the axes, repetition, name.
        prepared: folder of the prepared data.
    """

    name: str
    row: Row
    job: Job
    folder: Path
    prepared: Path
    aggregated: bool = False


_WORLDS: dict[str, Experiment] = {}
"""Cache of this process: data and model → the world with its non-private optimum."""

_AGGREGATED: dict[str, dict[str, float | None]] = {}
"""Cache of this process: world → metrics of the mean of its parties' optima."""

_MAX_WORLDS = 4


def begin_process() -> None:
    """Prepare this process as a worker of a sweep: the sweep handles Ctrl-C, not the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard_streams()


class _WarningList(logging.Handler):
    """Warnings of a run, which the sweep shows once below its table."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> _WarningList:
        logging.getLogger("parley").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("parley").removeHandler(self)


def run_cell(task: CellTask) -> Row:
    """Run a cell from its beginning and write its row. A failure is also a row."""
    began = time.perf_counter()
    row = task.row | {"data": task.prepared.name}
    shutil.rmtree(task.folder, ignore_errors=True)
    task.folder.mkdir(parents=True)
    run = task.folder / "run"
    try:
        with _WarningList() as warned:
            load = partial(_load_world, prepared=task.prepared)
            result = simulate(task.job, out=run, version=__version__, load=load)
        row |= _collect_metrics(result.summary) | {
            "spent": _load_charges(run, result.summary.run_id),
            "warnings": warned.texts,
        }
        if task.aggregated:
            row |= _compute_aggregated(task.job, task.prepared)
    except Exception as error:
        known = get_exit_status(error) is not None
        said = str(error) if known else f"{type(error).__name__}: {error}"
        row |= {"status": "failed", "error": said}
    row |= {"wall_seconds": time.perf_counter() - began, "folder": str(run)}
    write_file(task.folder / "row.json", format_json(row) + "\n")
    return row


def read_row(folder: Path, *, name: str, data: str) -> Row | None:
    """Return the row of a cell that was run earlier on the same data. Return None if it was not, or
    failed.
    """
    try:
        row = json.loads(read_text(folder / "row.json"))
    except (OSError, ValueError):
        return None
    if not isinstance(row, dict) or (row.get("cell"), row.get("data")) != (name, data):
        return None
    return row if row.get("status") != "failed" else None


def _compute_world_key(job: Job) -> str:
    """Return the settings that determine a world, with the inputs of a rule for λ."""
    own = compute_data_key(job) + job.model.model_dump_json()
    return own if job.is_resolved else own + format_json(job.to_values())


def _load_world(job: Job, prepared: Path) -> Experiment:
    key = _compute_world_key(job)
    if key not in _WORLDS:
        while len(_WORLDS) >= _MAX_WORLDS:
            _WORLDS.pop(next(iter(_WORLDS)))
        _WORLDS[key] = build_experiment(job, load_prepared(prepared))
    return _WORLDS[key]


def _compute_aggregated(job: Job, prepared: Path) -> dict[str, float | None]:
    """Return metrics of the non-private mean of local optima, or nothing without a linear model."""
    key = _compute_world_key(job)
    if key not in _AGGREGATED:
        world = _load_world(job, prepared)
        theta, found = world.compute_aggregated(), dict[str, float | None]()
        if theta is not None:
            excess = world.compute_loss(theta) - world.compute_loss(world.compute_optimum())
            found = {"aggregated_excess_loss": excess}
            found[f"aggregated_{job.model.metric}"] = world.compute_accuracy(theta)
        _AGGREGATED[key] = found
    return _AGGREGATED[key]


def _load_charges(run: Path, run_id: str) -> dict[str, Any]:
    """Return the charges of the run's ledger, as plain values of a composition."""
    spent = Composition()
    with Ledger.open(run / "ledger.sqlite", read_only=True) as ledger:
        for recorded in ledger.list_entries(run_id):
            if recorded.outcome is not None:
                spent = spent.add(recorded.entry.event)
    return spent.to_json()


def _collect_metrics(summary: RunSummary) -> Row:
    """Return a run's metrics for its row."""
    found, of = summary.judgement, summary.primary
    figures = {
        "status": summary.status,
        "error": summary.reason,
        "model": summary.model,
        "algorithm": summary.algorithm,
        "parties": summary.parties,
        "records": sum(summary.records_by_party) or None,
        "epsilon_budget": of.epsilon_budget,
        "epsilon": of.epsilon,
        "delta": of.delta,
        "assumptions": list(of.assumptions or ()),
        "unit": of.unit,
        "neighbouring": of.neighbouring,
        "adversary": next((row.adversary for row in of.accounts if row.charged), ""),
        "rounds_done": summary.rounds_done,
        "noise_scale": of.noise.scale,
        "loss": summary.loss,
        "baseline_loss": summary.baseline_loss,
        "excess_loss": summary.excess_loss,
        summary.metric: summary.accuracy,  # accuracy, or R² of targets
        f"baseline_{summary.metric}": summary.baseline_accuracy,
        "majority_accuracy": summary.majority_accuracy,
        "seconds": summary.seconds,
    }
    if isinstance(found, ClassifierMetrics):
        figures |= {"auc": found.auc, "recall": found.recall, "precision": found.precision}
    return figures
