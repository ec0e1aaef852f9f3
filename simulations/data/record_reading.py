"""Read the records that a job's data section names, or that the caller passes in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from parley.client.data.schema import Schema
from parley.client.data.training_records import Records, build_records
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import (
    BUNDLED,
    CHUNK_ROWS,
    Columns,
    get_bundled_schema,
)
from parley.simulations.data.data_key_checks import check_data_keys, check_own_schema

if TYPE_CHECKING:
    from parley.simulations.data.source_records import InMemoryData


def read_sources(
    job: Job, rng: np.random.Generator, given: InMemoryData | None
) -> tuple[Records, int, list[int] | None]:
    """Return the records, K, and every party's number of records if there is one file for each."""
    if given is None:
        _check_source_named(job)
        if job.data.source in BUNDLED:
            check_data_keys(job, get_bundled_schema(job.data.source))
            return (*_load_bundled_records(job, rng), None)
    from parley.simulations.data import source_records  # noqa: PLC0415 - bundled sources need no files

    return source_records.read_named(job, rng, given)


def _check_source_named(job: Job) -> None:
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
