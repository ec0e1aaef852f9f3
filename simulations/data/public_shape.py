"""Determine what is public about a job's data without reading them, for planning."""

from __future__ import annotations

import os
from dataclasses import dataclass

from parley.client.data.schema import Schema, check_label, load_schema
from parley.client.features.base import FeatureError, FeatureMap
from parley.client.features.registry import build_map
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.bundled_datasets import BUNDLED, get_bundled_schema

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PublicShape:
    """Classes and minimum party size.

    Attributes:
        origin: source of `min_records`, in words.
    """

    classes: int
    min_records: int
    origin: str
    schema: Schema


def get_public_shape(job: Job) -> PublicShape:
    """Return columns from the schema, and party size from the job or a bundled source's known size.

    Raises:
        JobError: neither states it; the message names the key to set.
    """
    source = job.data.source
    check_own_schema(job)
    if source in BUNDLED:
        schema = get_bundled_schema(source)
    elif job.data.data_schema:
        schema = load_schema(job.data.data_schema)
    else:
        raise JobError(
            f"Expected data.schema to plan for data.source = {source!r} (it says how many columns "
            "there are), got none."
        )
    check_label(schema, job.label_kind(schema.classes))
    least, origin = _find_min_records(job)
    return PublicShape(
        classes=schema.classes,
        min_records=least,
        origin=origin,
        schema=schema,
    )


def check_own_schema(job: Job) -> None:
    """Raise JobError for a bundled source with a schema: it has its own."""
    source, schema = job.data.source, job.data.data_schema
    if source in BUNDLED and schema:
        raise JobError(
            f"Expected data.source = the records that data.schema = {schema!r} is for, got the "
            f"bundled {source!r}, which has its own schema. To plan without records, leave "
            "data.source empty."
        )


def _find_min_records(job: Job) -> tuple[int, str]:
    """Return n₍₁₎ and its origin."""
    source, least = job.data.source, job.parties.min_records
    if least != "auto":
        return least, "parties.min-records"
    total = job.data.records or (BUNDLED[source].records if source in BUNDLED else 0)
    if job.data.partition == "sizes":
        smallest, origin = min(job.data.sizes), "data.sizes"
    elif job.data.partition == "iid" and total:
        train = total - round(total * job.data.test_fraction)
        smallest, origin = train // job.parties.count, "equal shares of the training records"
    else:
        raise JobError(
            "Expected parties.min-records, the public least number of records a party holds, to "
            "plan without the data (--set parties.min-records=200, if it is 200); got 'auto'."
        )
    if smallest < 1:
        raise JobError(
            f"Expected a training record for every party, got {total} records for "
            f"{job.parties.count}: use a smaller parties.count."
        )
    return smallest, origin


def compute_width(job: Job, schema: Schema) -> int:
    """Return p, the width of the rows that a resolved job learns from."""
    features = build_feature_map(job)
    if features is None:
        return schema.dimension
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


def get_memory_limit_mib(job: Job) -> int:
    """Return the MiB that a run's records may take: the job's limit, or half of this machine's
    memory.
    """
    if job.run.memory != "auto":
        return job.run.memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MIB
