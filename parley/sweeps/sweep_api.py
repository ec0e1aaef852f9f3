"""`parley.sweep`: a job over a grid of its keys, from Python."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from parley.client.data.data_sources import MemoryTable
from parley.client.data.file_format_overrides import is_file_list
from parley.client.data.memory_table_format import to_series
from parley.client.data.schema import Schema
from parley.keyword_keys import KEYWORD_KEYS
from parley.privacy.ledger.hash_chain import encode_canonical_json
from parley.run_request import RunRequest, build_run_request, is_job, list_set_values
from parley.safe_io.file_writing import write_file
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.in_memory_data import build_in_memory_data
from parley.sweeps.sweep_cells import MAX_CELLS, build_sweep
from parley.sweeps.sweep_runner import SweepProgress, SweepResult, run_sweep, run_sweep_cells


def sweep(
    base: Any = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    *,
    methods: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int | Sequence[int] = 1,
    job: Job | Mapping[str, Any] | str | Path | None = None,
    data: Any = None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    label: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    parties: int | None = None,
    unit: str | None = None,
    model: str | None = None,
    algorithm: str | None = None,
    rounds: int | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    most: int | None = MAX_CELLS,
    metric: str | None = None,
    observe: Callable[[SweepProgress], None] = lambda progress: None,
) -> SweepResult:
    """Run a job over a grid of its keys, as simulations; return means with intervals.

        found = parley.sweep(data=frame, label="sick", over={"epsilon": [0.5, 1, 2]}, seeds=5)
        pandas.DataFrame(found.table)

    The same call again runs only what is new.

    Args:
        base: a job, its file or its keys; or a sweep file, without other arguments.
        over: key or keyword → values; every combination is run.
        methods: name → keys, as an axis called "method".
        seeds: number of repetitions, or a list of whole numbers.
        job, data, schema, label, epsilon, delta, parties, unit, model, algorithm, rounds: as
            `parley.run` takes them.
        out: folder of the results; default one in `sweeps`, by the content of the call.
        workers: number of processes; default one per core.
        most: most cells; None for any number.
        metric: the one in the tables, such as "auc"; default accuracy, R² or loss.
        observe: called after every cell.

    Raises:
        JobError: an unknown key, too many cells, or a model that is an object.
    """
    if over is None and methods is None:
        if not isinstance(base, str | Path):
            raise JobError('Expected over= with values, such as over={"epsilon": [0.5, 1, 2]}.')
        return run_sweep(base, out=out, workers=workers, most=most, metric=metric, observe=observe)
    if model is not None and not isinstance(model, str):
        raise JobError(
            "Expected the model's name in a sweep, whose cells run in other processes, got an "
            'object. Write it in a file: model="file.py:function".'
        )
    if base is not None and not is_job(base):
        raise JobError("Expected a job, its file or its keys as base; give records as data=.")
    request = build_run_request(
        base, job=job, data=data, schema=schema, label=label, epsilon=epsilon, delta=delta,
        parties=parties, unit=unit, model=model, algorithm=algorithm, rounds=rounds,
    )  # fmt: skip
    tree = list_set_values(request.job)
    grid = {KEYWORD_KEYS.get(key, key): list(values) for key, values in (over or {}).items()}
    table = {"seeds": seeds, "grid": grid, "methods": dict(methods or {})}
    digest = hashlib.sha256(encode_canonical_json([repr(tree), repr(table)]).encode("ascii"))
    folder = Path("sweeps") / digest.hexdigest()[:12] if out is None else Path(out)
    if request.data is not None:
        tree.setdefault("data", {}).update(_store_records(request, folder))
    described = build_sweep({**tree, "sweep": table}, source="parley.sweep", max_cells=most)
    return run_sweep_cells(described, folder, workers=workers, metric=metric, observe=observe)


def _store_records(request: RunRequest, folder: Path) -> dict[str, Any]:
    """Write records and schema into the folder; return the keys of `[data]` that name them."""
    given = build_in_memory_data(
        request.job, request.data, schema=request.schema, label=request.label
    )
    folder.mkdir(parents=True, exist_ok=True)
    schema = folder / "schema.toml"
    _write_once(schema, given.schema.to_toml().encode())
    if is_file_list(request.data):
        files = [{"path": each} if isinstance(each, str | Path) else each for each in request.data]
        absolute = [{**file, "path": str(Path(file["path"]).absolute())} for file in files]
        return {"files": absolute, "source": "", "schema": str(schema)}
    if isinstance(request.data, str | Path):
        return {"source": str(Path(request.data).absolute()), "schema": str(schema)}
    tables = [table for table in given.frames if isinstance(table, MemoryTable)]
    arrays = any(np.ndim(cells) > 1 for table in tables for cells in table.columns.values())
    kind, write = ("npz", _write_arrays) if arrays else ("parquet", _write_parquet)
    for at, table in enumerate(tables, 1):
        content = io.BytesIO()
        write(table, content)
        _write_once(folder / f"records-{at}.{kind}", content.getvalue())
    name = f"records-{'*' if given.is_one_per_party else '1'}.{kind}"
    return {"source": str(folder / name), "schema": str(schema)}


def _write_once(path: Path, content: bytes) -> None:
    """Write a file, unless it has this content. A newer file would be prepared again."""
    if not path.exists() or path.read_bytes() != content:
        write_file(path, content)


def _write_parquet(table: MemoryTable, file: BinaryIO) -> None:
    columns = [to_series(name, cells) for name, cells in table.columns.items()]
    pl.DataFrame(columns).write_parquet(file)


def _write_arrays(table: MemoryTable, file: BinaryIO) -> None:
    plain: dict[str, Any] = {name: np.asarray(cells) for name, cells in table.columns.items()}
    texts = {name: cells.astype(str) for name, cells in plain.items() if cells.dtype == object}
    np.savez(file, **(plain | texts))
