"""Build a starter folder: a job, its schema, a network and a notebook for some records.

The records are read once by the schema before a file is written, so the folder runs as it is.
Files of records stay where they are. Only a bundled data set is copied into the folder.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import polars as pl

from parley.client.data.column_types import NumericColumn
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import MemoryTable
from parley.client.data.party_file_pattern import find_party_files, refuse_folder
from parley.client.data.schema import Schema, SchemaError, load_schema
from parley.client.data.schema_inference.schema_draft import infer_schema
from parley.presentation.short_layout import Row
from parley.privacy.ledger.database_url import is_database
from parley.safe_io.file_writing import write_file
from parley.safe_io.path_names import is_plain_name
from parley.safe_io.plurals import format_noun
from parley.safe_io.toml_writing import format_toml_value
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import BUNDLED
from parley.simulations.data.experiment_loading import prepare_data
from parley.simulations.data.in_memory_data import adapt_job_to_memory
from parley.simulations.data.source_records import InMemoryData
from parley.starter.starter_notebook import build_notebook, quote_text

EXAMPLE = "breast-cancer"
"""Bundled data set of a folder without records of your own."""

_PARTIES = 5
_MAX_LISTED = 5
_MODELS = {
    "logistic": '"logistic"        # two labels',
    "softmax": '"softmax"         # several labels',
    "ridge": '"ridge"           # a number to predict',
}
"""Kind of model → its value and comment in the job file."""


@dataclass(frozen=True, kw_only=True)
class StarterFolder:
    """A folder's name and files, and what to tell the person who asked for it."""

    name: str
    files: Mapping[str, bytes | str]
    rows: tuple[Row, ...]

    def write(self) -> None:
        """Make the folder in the current one. It has all files, or it does not exist.

        Raises:
            OSError: the folder cannot be made or written to.
        """
        folder = Path(self.name)
        folder.mkdir()
        try:
            for name, content in self.files.items():
                write_file(folder / name, content)
        except BaseException:
            shutil.rmtree(folder)
            raise


@dataclass(frozen=True, kw_only=True)
class _Records:
    """Records, their schema file, and what was found about them.

    Attributes:
        source: `data.source` of the job, relative to the folder.
        first: a file of the records, relative to the folder.
        copies: files of records that belong into the folder.
        notes: rows for the person.
    """

    source: str
    first: str
    given: InMemoryData
    schema_text: str
    copies: Mapping[str, bytes]
    notes: tuple[Row, ...]


def build_starter_folder(
    name: str, *, data: str = EXAMPLE, schema: str | Path | None = None, label: str | None = None
) -> StarterFolder:
    """Build the folder, and check that its job can be run.

    Args:
        name: of the folder, in the current one.
        data: a file, a glob with one file per party, or a bundled data set.
        schema: a schema file to copy; without one it is read off the data.
        label: the column to predict, if there is no schema; default the last one.

    Raises:
        JobError: the name cannot be a folder's, or is taken.
        DataError, SchemaError: the records cannot be read, or have no label.
    """
    _check_name(name)
    if data in BUNDLED:
        if schema is not None or label is not None:
            raise SchemaError(
                f"Expected no --schema and no --label with the bundled {data!r}, which has its own."
            )
        records = _copy_bundled(data)
    else:
        records = _read_files(data, schema, label)
    job, min_records = _try_job(records.given, data)
    known, kind = records.given.schema, str(job.model.kind)
    has_network = kind != "ridge"
    files: dict[str, bytes | str] = {
        "job.toml": _format_job(name, records, job, min_records),
        "schema.toml": records.schema_text,
    }
    if has_network:
        files["model.py"] = _read_template("model.py")
    files["notebook.ipynb"] = build_notebook(
        name,
        source=records.source,
        first=records.first,
        parties=job.parties.count,
        questions=_choose_questions(known),
        has_network=has_network,
    )
    return StarterFolder(
        name=name,
        files={**files, **records.copies},
        rows=tuple(_list_rows(name, records, job, has_network=has_network)),
    )


def _check_name(name: str) -> None:
    if not is_plain_name(name):
        raise JobError(
            "Expected a folder's name of letters, digits, '.', '_' and '-' that begins with a "
            f"letter or digit, got {name!r:.130}. The folder is made in the current one."
        )
    if os.path.lexists(name):
        raise JobError(f"Expected a new folder, {name} exists. Choose another name.")


def _copy_bundled(name: str) -> _Records:
    """Return a bundled data set as files of the folder, with its reviewed schema."""
    text = BUNDLED[name].schema().lstrip()
    schema = Schema.from_toml(text, source=name)
    columns = BUNDLED[name].columns("logistic", BUNDLED[name].records, 0)
    content = io.BytesIO()
    if any(cells.ndim > 1 for cells in columns.values()):
        file = "data.npz"
        arrays: dict[str, Any] = dict(columns)
        np.savez_compressed(content, **arrays)
    else:
        file = "data.csv"
        pl.DataFrame(columns).write_csv(content)
    return _Records(
        source=file,
        first=file,
        given=InMemoryData(
            frames=(MemoryTable(columns=columns, name=name),), is_one_per_party=False, schema=schema
        ),
        schema_text=text,
        copies={file: content.getvalue()},
        notes=(Row("Data", f"{file}: {BUNDLED[name].records} public example records ({name})"),),
    )


def _read_files(data: str, schema: str | Path | None, label: str | None) -> _Records:
    if is_database(data):
        raise DataError(
            "a file, or a glob with one file per party (for a database see docs/schema.md)",
            "a database",
            path=data,
        )
    is_glob = any(mark in data for mark in "*?[") and not Path(data).exists()
    paths = find_party_files(data) if is_glob else [Path(data)]
    if not is_glob:
        refuse_folder(data)
        if any(mark in data for mark in "*?["):
            raise DataError(
                "a file name without *, ? and [, which a job reads as a pattern: rename the file",
                "one with them",
                path=data,
            )
    notes: list[Row] = []
    if schema is not None:
        known = load_schema(schema)
        if label not in (None, known.label_column):
            raise SchemaError(
                f"Expected --label {known.label_column}, the label of {schema}, got {label}. Leave "
                "--label out, or change the schema."
            )
        text = Path(schema).read_text(encoding="utf-8")
    else:
        draft = infer_schema(*paths, label=label)
        text, known = draft.text, Schema.from_toml(draft.text)
        chosen = "" if label else " (the last column; --label names another)"
        notes.append(Row("Predicts", f"{draft.label}{chosen}"))
        doubt = next(column.doubt for column in draft.columns if column.name == draft.label)
        notes.append(Row("", f"{draft.label}: {doubt}" if doubt else ""))
        ignored = [column.name for column in draft.columns if column.is_ignored]
        notes.append(Row("Ignores", _list_some(ignored)))
    if known.drafted:
        review = (
            "schema.toml was read from the records, which ε does not cover. Replace its "
            "ranges and categories by public knowledge, then delete drafted = true."
        )
        notes.append(Row("Review", review))
    return _Records(
        source=_locate(data),
        first=_locate(str(paths[0])),
        given=InMemoryData(frames=tuple(paths), is_one_per_party=is_glob, schema=known),
        schema_text=text,
        copies={},
        notes=tuple(notes),
    )


def _list_some(names: list[str]) -> str:
    more = f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _locate(path: str) -> str:
    """Return a path as seen from inside the folder."""
    return path if os.path.isabs(path) else os.path.normpath(os.path.join("..", path))


def _try_job(given: InMemoryData, data: str) -> tuple[Job, int]:
    """Return the job and the smallest party's number of training records.

    Raises:
        SchemaError: a run would refuse the records; it says how to write a schema for them.
    """
    try:
        job = adapt_job_to_memory(load_job(values={"parties": {"count": len(given.frames)}}), given)
        sizes = prepare_data(job, given).sizes
    except DataError as error:
        label = shlex.quote(given.schema.label_column)
        draft = f"parley schema infer {shlex.quote(data)} --label {label} --out schema.toml"
        remedy = f", which --schema names (`{draft}` drafts one)" if given.schema.drafted else ""
        raise SchemaError(f"{error}\nCorrect the records, or the schema{remedy}.") from error
    if given.is_one_per_party:
        return job, int(sizes.min())
    parties = min(_PARTIES, int(sizes[0]))
    section = job.parties.model_copy(update={"count": parties})
    return job.model_copy(update={"parties": section}), int(sizes[0]) // parties


def _format_job(name: str, records: _Records, job: Job, min_records: int) -> str:
    partition = 'partition = "iid"        # how the file is split: iid, column, dirichlet or sizes'
    if records.given.is_one_per_party:
        partition = "# one file per party"
    return Template(_read_template("job.toml")).substitute(
        name=name,
        source=format_toml_value(records.source),
        partition=partition,
        parties=job.parties.count,
        min_records=min_records,
        model=f"kind = {_MODELS[job.model.kind]}",
    )


def _choose_questions(schema: Schema) -> list[str]:
    """Return queries that fit the columns, each at half of ε = 1."""
    numbers = [n for n, column in schema.features.items() if isinstance(column, NumericColumn)]
    label = quote_text(schema.label_column)
    asked = "mean" if schema.label.range is not None else "histogram"
    means = [f"s.mean({quote_text(name)}, epsilon=0.5)" for name in numbers[:1]]
    return [f"s.{asked}({label}, epsilon=0.5)", *means]


def _list_rows(name: str, records: _Records, job: Job, *, has_network: bool) -> list[Row]:
    schema = records.given.schema
    columns = f"{len(schema.features)} {format_noun(len(schema.features), 'column')}"
    code = "model.py, " if has_network else ""
    rows = [
        Row("", f"{name}/ has job.toml, schema.toml, {code}notebook.ipynb"),
        Row(
            "Job",
            f"{job.parties.count} {format_noun(job.parties.count, 'party')}, {job.model.kind}, "
            f"{columns}, ε = 1 per record (replace-one), simulated on this machine",
        ),
        *records.notes,
        Row("Next", f"cd {name}", whole=True),
        Row("Plan", "parley plan job.toml", whole=True),
        Row("Train", "parley run job.toml", whole=True),
    ]
    if has_network:
        rows.append(Row("Network", "parley run job.toml --model model.py:network", whole=True))
    return rows


def _read_template(name: str) -> str:
    return (resources.files("parley.starter") / "templates" / name).read_text(encoding="utf-8")
