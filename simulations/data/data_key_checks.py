"""Check what a simulation's data keys ask of its schema and source, before a record is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parley.client.data.schema import Schema, load_schema
from parley.server.jobs.job import Job
from parley.server.jobs.parties_and_data import DataSection
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import BUNDLED

if TYPE_CHECKING:
    from parley.client.data.block_selection import Division

_MAX_NAMES = 20
"""Columns that an error lists."""


def check_files(job: Job) -> None:
    """Refuse folders that are named in the place of files.

    Raises:
        DataError: of records; the message names the folder's files.
        SchemaError: of schemas.
    """
    data = job.data
    sources = (data.source, *(table["path"] for table in data.files), data.test_source)
    files = [each for each in sources if each and each not in BUNDLED and not data.query]
    if files:
        from parley.client.data.party_file_pattern import refuse_folder  # noqa: PLC0415 - spares its code for bundled data

        for file in files:
            refuse_folder(file)
    for schema in (data.data_schema, data.test_schema):
        if schema and Path(schema).is_dir():
            load_schema(schema)


def check_own_schema(job: Job) -> None:
    """Raise JobError for a bundled source with a schema: it has its own."""
    source, schema = job.data.source, job.data.data_schema
    if source in BUNDLED and schema:
        raise JobError(
            f"Expected data.source = the records of data.schema = {schema!r}, got the bundled "
            f"{source!r}, which has its own schema. To plan without records, leave data.source "
            "empty."
        )


def check_data_keys(job: Job, schema: Schema) -> None:
    """Check what a simulation's data keys ask of its schema and source.

    `plan` and `run` refuse the same jobs here, before a record is read.

    Raises:
        JobError, SchemaError: a key names a column that the source does not have, or records that
            are not there.
    """
    data = job.data
    if (division := build_division(job)) is not None:
        division.check(schema)
    if data.source in BUNDLED:
        most = BUNDLED[data.source].records
        if data.records > most and data.source != "synthetic":
            raise JobError(
                f"Expected data.records of at most {most} from {data.source}, got {data.records}."
            )
    if data.partition == "column":
        _check_partition_column(job, schema)
    if data.partition == "sizes" and (total := count_public_records(job)) is not None:
        _check_sizes_fit(job, total)
    if data.test_source:
        load_test_schema(job, schema.classes)


def _check_partition_column(job: Job, schema: Schema) -> None:
    name, source = job.data.partition_column, job.data.source
    if source in BUNDLED:
        raise JobError(
            f"Expected a file with a column {name!r} for partition = 'column', got the bundled "
            f"source {source!r}."
        )
    if name not in schema.columns:
        names = [*schema.columns][:_MAX_NAMES]
        more = ", …" if len(schema.columns) > _MAX_NAMES else ""
        raise JobError(
            f"Expected data.partition-column to be a column of the schema ({', '.join(names)}"
            f"{more}), got {name!r}."
        )


def _check_sizes_fit(job: Job, total: int) -> None:
    train = total - round(total * job.data.test_fraction)
    if sum(job.data.sizes) > train:
        raise JobError(
            f"Expected data.sizes that sum to at most {train} records, got "
            f"{sum(job.data.sizes)}. Lower the sizes or data.test-fraction."
        )


def build_division(job: Job) -> Division | None:
    """Return how the records are divided, and which of them the job reads. Raises JobError."""
    data = job.data
    if not data.block_column:
        if data.blocks:
            raise JobError("Expected data.block-column with data.blocks in a simulation, got none.")
        return None
    if data.source in BUNDLED:
        raise JobError(f"Expected a file with data.block-column, got bundled {data.source!r}.")
    from parley.client.data.block_selection import Division  # noqa: PLC0415 - spares its code for records that are not divided

    return Division(column=data.block_column, read=tuple(data.blocks))


def load_test_schema(job: Job, classes: int) -> Schema:
    """Return the schema of `data.test-source`.

    Raises:
        JobError: it has another number of classes than the training data.
        SchemaError: it can't be read.
    """
    path = job.data.test_schema or job.data.data_schema
    schema = load_schema(path)
    if schema.classes != classes:
        raise JobError(
            f"Expected {classes} classes in {path}, as in the training data, got {schema.classes}."
        )
    return schema


def count_public_records(job: Job) -> int | None:
    """Return the number of records of all parties, if the job or a bundled source states it."""
    source = job.data.source
    return job.data.records or (BUNDLED[source].records if source in BUNDLED else None)


def find_job_files(data: DataSection) -> list[Path]:
    """Return the files that a job names: one per party, or one that is split."""
    if data.files:
        return [Path(table["path"]) for table in data.files]
    if not data.has_several_files:
        return [Path(data.source)]
    from parley.client.data.party_file_pattern import find_party_files  # noqa: PLC0415 - likewise

    return find_party_files(data.source)
