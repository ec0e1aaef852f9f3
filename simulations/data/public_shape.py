"""Determine what is public about a job's data without reading them, for planning."""

from __future__ import annotations

from dataclasses import dataclass

from parley.client.data.schema import Schema, check_label, load_schema
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import BUNDLED, get_bundled_schema
from parley.simulations.data.data_key_checks import (
    check_data_keys,
    check_files,
    check_own_schema,
    count_public_records,
)


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
    return PublicShape(classes=schema.classes, min_records=least, origin=origin, schema=schema)


def _find_min_records(job: Job) -> tuple[int, str]:
    """Return n₍₁₎ and its origin."""
    least = job.parties.min_records
    if least != "auto":
        return least, "parties.min-records"
    total = count_public_records(job)
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
