"""Read the records that a job's data section names: bundled, in memory, a query, or files.

`InMemoryData` holds data that the caller passes in memory, with their schema.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parley.client.data.content_digest import sum_contents
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import FormattedFile, MemoryTable, Source, SqlQuery
from parley.client.data.party_file_pattern import find_party_files
from parley.client.data.records import Records, build_records, join_records
from parley.client.data.schema import Schema, SchemaError, load_schema
from parley.safe_io.plugin_table import load_attribute
from parley.server.jobs.external_references import MEMORY
from parley.server.jobs.job import Job
from parley.server.jobs.parties_and_data import DataSection
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import (
    BUNDLED,
    CHUNK_ROWS,
    Columns,
    get_bundled_schema,
)
from parley.simulations.data.public_shape import (
    build_division,
    check_data_keys,
    check_own_schema,
    load_test_schema,
)

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import RowStorage

_PARSE = "parley.client.data.formatted_file:parse_file_table"
_READ = "parley.client.data.record_reading:read_records"
_STORAGE = "parley.client.data.sparse_rows:RowStorage"
"""Imported only for a source that is not bundled, or a list of files."""


@dataclass(frozen=True, kw_only=True)
class InMemoryData:
    """Data in memory.

    Attributes:
        frames: one table for all parties, or each party's; or files that the job does not name.
        is_one_per_party: which of the two.
    """

    frames: tuple[MemoryTable | FormattedFile | Path, ...]
    is_one_per_party: bool
    schema: Schema


def _get_cell_schema(job: Job, schema: Schema) -> Schema:
    """Return how cells are read: a map takes them before rows are scaled."""
    return schema.unscaled if job.model.is_mapped else schema


def read_sources(
    job: Job, rng: np.random.Generator, given: InMemoryData | None
) -> tuple[Records, int, list[int] | None]:
    """Return the records, K, and every party's number of records if there is one file for each."""
    data = job.data
    if given is not None:
        check_data_keys(job, given.schema)
        schema = _get_cell_schema(job, given.schema)
        if given.is_one_per_party:
            return _join_parties(job, schema, given.frames)
        return (*_sample_records(job, given.frames, schema, rng), None)
    check_source_named(job)
    if data.source in BUNDLED:
        check_data_keys(job, get_bundled_schema(data.source))
        return (*_load_bundled_records(job, rng), None)
    if data.source in MEMORY:
        raise JobError(
            f"Expected the data of a job with data.source = {data.source!r}. Pass them with "
            "parley.run(job, data=…), also with resume."
        )
    if not data.data_schema:
        if data.has_several_files:
            find_job_files(data)  # raises if no file matches
        elif not (data.query or Path(data.source).is_file()):
            raise DataError("a file", "no such file (check data.source)", path=data.source)
        command = f"parley schema infer {shlex.quote(data.source)}"
        command += " --query …" if data.query else ""
        raise JobError(
            f"Expected data.schema with data.source = {data.source!r}, got none. "
            f"`{command}` writes a first one to review. "
            f"Bundled sources, which need none: {', '.join(BUNDLED)}."
        )
    own = load_schema(data.data_schema)
    check_data_keys(job, own)
    schema = _get_cell_schema(job, own)
    if data.files:
        return _join_parties(job, schema, list(map(load_attribute(_PARSE), data.files)))
    if data.has_several_files:
        return _join_parties(job, schema, find_party_files(data.source))
    source = query_of(data) if data.query else data.source
    return (*_sample_records(job, (source,), schema, rng), None)


def find_job_files(data: DataSection) -> list[Path]:
    """Return the files that a job names: one per party, or one that is split."""
    if data.files:
        return [Path(table["path"]) for table in data.files]
    return find_party_files(data.source) if data.has_several_files else [Path(data.source)]


def query_of(data: DataSection) -> SqlQuery:
    """Return the query of a job's records."""
    return SqlQuery(database=data.source, query=data.query, timeout_s=data.query_timeout)


def _join_parties(
    job: Job, schema: Schema, sources: Sequence[Source]
) -> tuple[Records, int, list[int]]:
    """Return the records of one file per party."""
    kind = job.label_kind(schema.classes)
    divided = build_division(job)
    storage = _build_storage(job, schema)
    parts = [
        load_attribute(_READ)(source, schema, kind, division=divided, storage=storage)
        for source in sources
    ]
    if len(parts) != job.parties.count:
        raise JobError(
            f"Expected parties.count = {len(parts)}, the number of files that match "
            f"{job.data.source}, got {job.parties.count}. Use --set parties.count={len(parts)}."
        )
    sizes = [len(part) for part in parts]
    contents = sum_contents([part.contents for part in parts if part.contents])
    joined = join_records(parts, None, storage)
    return replace(joined, contents=contents), schema.classes, sizes


def _build_storage(job: Job, schema: Schema) -> RowStorage | None:
    """Return the storage of rows that may be sparse; None if not only sums over them are needed."""
    if job.model.learns != "linear":
        return None
    storage: RowStorage = load_attribute(_STORAGE)(max_entries=schema.max_entries)
    return storage


def _sample_records(
    job: Job,
    sources: Sequence[Source],
    schema: Schema,
    rng: np.random.Generator,
) -> tuple[Records, int]:
    """Return the records of one table, or the job's sample of them."""
    column = job.data.partition_column if job.data.partition == "column" else None
    kind = job.label_kind(schema.classes)
    sample = job.data.records or None
    try:
        records = load_attribute(_READ)(
            sources,
            schema,
            kind,
            group_column=column,
            sample=sample,
            rng=rng,
            division=build_division(job),
            storage=_build_storage(job, schema),
        )
    except (DataError, SchemaError):
        raise
    except ValueError as error:  # More records were requested than there are.
        raise JobError(f"data.records: {error}") from error
    return records, schema.classes


def check_source_named(job: Job) -> None:
    """Raise JobError if the job's data have no name, or a schema that is not read."""
    data = job.data
    if data.files:
        return
    if not data.source:
        given = f" with data.schema = {data.data_schema!r}" if data.data_schema else ""
        raise JobError(
            f"Expected data.source{given}, got none. It names the records: a file, a glob with "
            f"one file per party, a database, or a bundled source ({', '.join(BUNDLED)})."
        )
    check_own_schema(job)


def read_test(job: Job, classes: int) -> Records:
    """Return the records of `data.test-source`."""
    schema = load_test_schema(job, classes)
    own = _get_cell_schema(job, schema)
    records: Records = load_attribute(_READ)(
        job.data.test_source, own, job.label_kind(schema.classes), storage=_build_storage(job, own)
    )
    return records


def _load_bundled_records(job: Job, rng: np.random.Generator) -> tuple[Records, int]:
    source, wanted, scaled = job.data.source, job.data.records, not job.model.is_mapped
    kind = job.label_kind(get_bundled_schema(source).classes)
    drawn = wanted if source == "synthetic" and wanted else BUNDLED[source].records
    records, schema = load_bundled(source, kind, records=drawn, seed=job.data.seed, scaled=scaled)
    if wanted and source != "synthetic":
        records = records.take(rng.choice(len(records), wanted, replace=False))
    return records, schema.classes


def load_bundled(
    name: str,
    model_kind: str = "logistic",
    *,
    records: int = 5000,
    seed: int = 0,
    scaled: bool = True,
) -> tuple[Records, Schema]:
    """Load the records of a bundled data set and its schema.

    >>> records, schema = load_bundled("synthetic", records=100, seed=1)
    >>> records.features.shape, sorted(set(records.labels.tolist()))
    ((100, 20), [-1.0, 1.0])

    Args:
        model_kind: logistic, softmax or ridge: how the label is read.
        records, seed: N and the seed of "synthetic"; no effect on the others.
        scaled: whether rows have norm at most 1; else their cells stay as the schema reads them.

    Raises:
        DataError: more records than there is memory for.
        SchemaError: the data set has no label for `model_kind`.
    """
    schema = get_bundled_schema(name)
    if records < 1:
        raise ValueError(f"Expected records ≥ 1, got {records}.")
    if name == "synthetic":
        from parley.client.data.memory_limit import compute_memory_limit  # noqa: PLC0415 - other data sets are small

        compute_memory_limit(math.inf).check_records(records, features=schema.dimension, path=name)
    columns = BUNDLED[name].columns(model_kind, records, seed)
    read = schema if scaled else schema.unscaled
    if name == "synthetic":
        return _read_in_place(columns, read, model_kind), schema
    return build_records(columns, read, model_kind, source=name), schema


def _read_in_place(columns: Columns, schema: Schema, model_kind: str) -> Records:
    """Read the records of columns x and y in the memory of x, so that they are held only once."""
    x, labels = columns["x"], []
    for begin in range(0, len(x), CHUNK_ROWS):
        rows = slice(begin, begin + CHUNK_ROWS)
        piece = {name: values[rows] for name, values in columns.items()}
        read = build_records(piece, schema, model_kind, source="synthetic")
        x[rows] = read.features
        labels.append(read.labels)
    return Records(
        features=x, labels=np.concatenate(labels), feature_names=read.feature_names, buffer=x.base
    )
