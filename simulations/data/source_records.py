"""Read the records of files, a query, or tables in memory: of any source that is not bundled."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parley.client.data.data_error import DataError
from parley.client.data.data_sources import FormattedFile, MemoryTable, Source, SqlQuery
from parley.client.data.file_format_overrides import parse_file_table
from parley.client.data.multiset_digest import sum_contents
from parley.client.data.party_file_pattern import find_party_files
from parley.client.data.record_concatenation import join_records
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, SchemaError, load_schema
from parley.client.data.sparse_rows import RowStorage
from parley.client.data.training_records import Records
from parley.server.jobs.external_references import MEMORY
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import BUNDLED
from parley.simulations.data.data_key_checks import (
    build_division,
    check_data_keys,
    find_job_files,
    load_test_schema,
)


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


def read_named(
    job: Job, rng: np.random.Generator, given: InMemoryData | None
) -> tuple[Records, int, list[int] | None]:
    """Return what `read_sources` does."""
    own = given.schema if given is not None else _load_schema(job)
    check_data_keys(job, own)
    schema = _get_cell_schema(job, own)
    sources: Sequence[Source]
    if given is not None:
        sources, is_one_per_party = given.frames, given.is_one_per_party
    else:
        sources, is_one_per_party = _find_sources(job)
    if is_one_per_party:
        return _join_parties(job, schema, sources)
    return (*_sample_records(job, sources, schema, rng), None)


def _load_schema(job: Job) -> Schema:
    """Return the schema that a job names for its records."""
    data = job.data
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
            f"Expected data.schema with data.source = {data.source!r}, got none. `{command}` "
            f"writes a first one to review. Bundled sources, which need none: {', '.join(BUNDLED)}."
        )
    return load_schema(data.data_schema)


def _find_sources(job: Job) -> tuple[Sequence[Source], bool]:
    """Return where a job's records are, and whether there is one source per party."""
    data = job.data
    if data.files:
        return [parse_file_table(table) for table in data.files], True
    if data.has_several_files:
        return find_party_files(data.source), True
    if data.query:
        query = SqlQuery(database=data.source, query=data.query, timeout_s=data.query_timeout)
        return [query], False
    return [data.source], False


def _get_cell_schema(job: Job, schema: Schema) -> Schema:
    """Return how cells are read: a map takes them before rows are scaled."""
    return schema.unscaled if job.model.is_mapped else schema


def _join_parties(
    job: Job, schema: Schema, sources: Sequence[Source]
) -> tuple[Records, int, list[int]]:
    """Return the records of one file per party."""
    kind = job.label_kind(schema.classes)
    divided = build_division(job)
    storage = _build_storage(job, schema)
    parts = [
        read_records(source, schema, kind, division=divided, storage=storage) for source in sources
    ]
    if len(parts) != job.parties.count:
        raise JobError(
            f"Expected parties.count = {len(parts)}, the number of files that match "
            f"{job.data.source}, got {job.parties.count}. Use --set parties.count={len(parts)}."
        )
    sizes = [len(part) for part in parts]
    contents = sum_contents([part.contents for part in parts if part.contents])
    return replace(join_records(parts, None, storage), contents=contents), schema.classes, sizes


def _build_storage(job: Job, schema: Schema) -> RowStorage | None:
    """Return the storage of rows that may be sparse; None if not only sums over them are needed."""
    return RowStorage(max_entries=schema.max_entries) if job.model.learns == "linear" else None


def _sample_records(
    job: Job, sources: Sequence[Source], schema: Schema, rng: np.random.Generator
) -> tuple[Records, int]:
    """Return the records of one table, or the job's sample of them."""
    try:
        records = read_records(
            sources,
            schema,
            job.label_kind(schema.classes),
            group_column=job.data.partition_column if job.data.partition == "column" else None,
            sample=job.data.records or None,
            rng=rng,
            division=build_division(job),
            storage=_build_storage(job, schema),
        )
    except (DataError, SchemaError):
        raise
    except ValueError as error:  # More records were requested than there are.
        raise JobError(f"data.records: {error}") from error
    return records, schema.classes


def read_test(job: Job, classes: int) -> Records:
    """Return the records of `data.test-source`."""
    schema = load_test_schema(job, classes)
    own = _get_cell_schema(job, schema)
    kind = job.label_kind(schema.classes)
    return read_records(job.data.test_source, own, kind, storage=_build_storage(job, own))
