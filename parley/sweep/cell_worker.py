"""One cell of a sweep, run in its own process that keeps the data of the last cells.

What comes back, and lies in the cell's folder as `row.json`, is a row of plain values.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.exit_status import exit_status
from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.ledger import Ledger
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import json_text
from parley.safe_io.printable_text import guard_streams
from parley.server.jobs.job import Job
from parley.server.records.evaluation import Judgement
from parley.server.records.run_summary import RunSummary
from parley.simulations.data.experiment import experiment_of
from parley.simulations.data.prepared_data import PreparedData, data_key
from parley.simulations.data.simulated_world import Experiment
from parley.simulations.engine.fast_engine import simulate
from parley.sweep.sweep_results import Row
from parley.version import __version__


@dataclass(frozen=True, kw_only=True)
class Task:
    """A cell to run.

    Attributes:
        row: what its row begins with: values of the axes, repetition, name.
        prepared: folder of the data that it learns from.
    """

    name: str
    row: Row
    job: Job
    folder: Path
    prepared: Path
    aggregated: bool = False


_WORLDS: dict[str, Experiment] = {}
"""Of this process: data and model → the world, whose non-private optimum is computed once."""

_AGGREGATED: dict[str, dict[str, float | None]] = {}
"""Of this process: world → figures of the mean of its parties' optima."""

_MOST_WORLDS = 4


def begin_process() -> None:
    """Makes this process one of a sweep: Ctrl-C, which reaches it too, is the sweep's to hear.

    It says each warning once, however many cells have cause for it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard_streams()
    said: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        known = text in said
        said.add(text)
        return not known

    handler = logging.StreamHandler()
    handler.addFilter(new)
    logging.getLogger("parley").addHandler(handler)


def run_cell(task: Task) -> Row:
    """Runs a cell from its beginning and writes its row; a failure is a row, too."""
    began = time.perf_counter()
    row = task.row | {"data": task.prepared.name}
    shutil.rmtree(task.folder, ignore_errors=True)
    task.folder.mkdir(parents=True)
    run = task.folder / "run"
    try:
        result = simulate(
            task.job, out=run, version=__version__, load=lambda job: _world(job, task.prepared)
        )
        row |= _figures(result.summary) | {"spent": _spent(run, result.summary.run_id)}
        if task.aggregated:
            row |= _aggregated(task.job, task.prepared)
    except Exception as error:
        # One failed cell doesn't stop the others; a bug keeps its kind, to be found by.
        known = exit_status(error) is not None
        said = str(error) if known else f"{type(error).__name__}: {error}"
        row |= {"status": "failed", "error": said}
    row |= {"wall_seconds": time.perf_counter() - began, "folder": str(run)}
    write_file(task.folder / "row.json", json_text(row) + "\n")
    return row


def read_row(folder: Path, *, name: str, data: str) -> Row | None:
    """The row of a cell that was run before on the same data; None where it was not, or failed."""
    try:
        row = json.loads((folder / "row.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(row, dict) or (row.get("cell"), row.get("data")) != (name, data):
        return None
    return row if row.get("status") != "failed" else None


def _world_key(job: Job) -> str:
    """What decides a world: of a rule's λ all that the rule looks at."""
    own = data_key(job) + job.model.model_dump_json()
    return own if job.is_settled else own + json_text(job.values())


def _world(job: Job, prepared: Path) -> Experiment:
    key = _world_key(job)
    if key not in _WORLDS:
        while len(_WORLDS) >= _MOST_WORLDS:
            _WORLDS.pop(next(iter(_WORLDS)))
        _WORLDS[key] = experiment_of(job, PreparedData.load(prepared))
    return _WORLDS[key]


def _aggregated(job: Job, prepared: Path) -> dict[str, float | None]:
    """The non-private mean of local optima; nothing where no linear model is learned."""
    key = _world_key(job)
    if key not in _AGGREGATED:
        world = _world(job, prepared)
        theta = world.aggregated()
        _AGGREGATED[key] = {} if theta is None else {
            "aggregated_excess_loss": world.loss(theta) - world.loss(world.optimum()),
            f"aggregated_{job.model.metric}": world.accuracy(theta),
        }  # fmt: skip
    return _AGGREGATED[key]


def _spent(run: Path, run_id: str) -> dict[str, Any]:
    """What the run's ledger was charged, as plain values of a composition."""
    spent = Composition.empty()
    with Ledger.open(run / "ledger.sqlite", read_only=True) as ledger:
        for recorded in ledger.entries(run_id):
            if recorded.outcome is not None:
                spent = spent.add(recorded.entry.event)
    return spent.to_json()


def _figures(summary: RunSummary) -> Row:
    """What a row says of a run."""
    found, of = summary.judgement, summary.primary
    figures = {
        "status": summary.status,
        "error": summary.reason,
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
    if isinstance(found, Judgement):
        figures |= {"auc": found.auc, "recall": found.recall, "precision": found.precision}
    return figures
