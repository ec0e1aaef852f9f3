"""Determine what is public about a job's data without reading them, for planning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parley.client.data.budget_blocks import Division
from parley.client.data.party_file_pattern import refuse_folder
from parley.client.data.schema import Schema, check_label, load_schema
from parley.client.features.base import FeatureMap
from parley.client.features.feature_error import FeatureError
from parley.client.features.map_building import build_map
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import BUNDLED, get_bundled_schema

_MAX_NAMES = 20
"""Columns that an error lists."""


@dataclass(frozen=True, kw_only=True)
class PublicShape:
    """Classes and minimum party size.

    Attributes:
        origin: source of `min_records`, in words.
        schema: None if only an app of the parties' own reads their records.
    """

    classes: int
    min_records: int
    origin: str
    schema: Schema | None


def get_public_shape(job: Job) -> PublicShape:
    """Return columns from the schema, and party size from the job or a bundled source's known size.

    Raises:
        JobError: neither states it; the message names the key to set.
    """
    source = job.data.source
    if job.algorithm.data_reading:
        return PublicShape(classes=0, min_records=1, origin="", schema=None)
    check_own_schema(job)
    check_files(job)
    if source in BUNDLED:
        schema = get_bundled_schema(source)
    elif job.data.data_schema:
        schema = load_schema(job.data.data_schema)
    else:
        raise JobError(
            f"Expected data.schema to plan for data.source = {source!r}, got none: it determines "
            "the number of columns."
        )
    check_label(schema, job.label_kind(schema.classes))
    if source or job.data.files:  # without one, parties may be real: they name their own columns
        check_data_keys(job, schema)
    least, origin = _find_min_records(job)
    return PublicShape(
        classes=schema.classes,
        min_records=least,
        origin=origin,
        schema=schema,
    )


def check_files(job: Job) -> None:
    """Refuse folders that are named in the place of files.

    Raises:
        DataError: of records; the message names the folder's files.
        SchemaError: of schemas.
    """
    data = job.data
    for source in (data.source, *(table["path"] for table in data.files), data.test_source):
        if source and source not in BUNDLED and not data.query:
            refuse_folder(source)
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
    if data.partition == "sizes" and (total := _count_public_records(job)) is not None:
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


def _count_public_records(job: Job) -> int | None:
    """Return the number of records of all parties, if the job or a bundled source states it."""
    source = job.data.source
    return job.data.records or (BUNDLED[source].records if source in BUNDLED else None)


def _find_min_records(job: Job) -> tuple[int, str]:
    """Return n₍₁₎ and its origin."""
    least = job.parties.min_records
    if least != "auto":
        return least, "parties.min-records"
    total = _count_public_records(job)
    if job.data.partition == "sizes":
        smallest, origin = min(job.data.sizes), "data.sizes"
    elif job.data.partition == "iid" and total:
        train = total - round(total * job.data.test_fraction)
        smallest, origin = train // job.parties.count, "equal shares of the training records"
    else:
        raise JobError(
            "Expected parties.min-records, the public minimum number of records per party, to "
            "plan without the data (--set parties.min-records=200, if it is 200); got 'auto'."
        )
    if smallest < 1:
        raise JobError(
            f"Expected a training record for every party, got {total} records for "
            f"{job.parties.count} parties. Use a smaller parties.count."
        )
    return smallest, origin


def compute_width(job: Job, schema: Schema | None) -> int:
    """Return p, the width of the rows that a resolved job learns from; 1 without a schema."""
    features = build_feature_map(job)
    if features is None or schema is None:
        return schema.dimension if schema else 1
    try:
        return features.bind(schema).width
    except FeatureError as error:
        raise JobError(str(error)) from error


def build_feature_map(job: Job) -> FeatureMap | None:
    """Return the public feature map of the job's records, or None.

    Raises:
        JobError: there is no such map, or its settings are refused.
    """
    named = job.model.feature_map
    if not named:
        return None
    place = getattr(job.model, "features", "")
    try:
        return build_map(named["name"], named["settings"], own_maps={named["name"]: place})
    except FeatureError as error:
        raise JobError(str(error)) from error
