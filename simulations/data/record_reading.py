"""Read the records that a job's data section names: bundled, in memory, a query, or files.

`InMemoryData` holds data that the caller passes in memory, with their schema.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parley.client.data.content_digest import sum_contents
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import MemoryTable, Source, SqlQuery, get_source_name
from parley.client.data.memory_columns import build_memory_table, has_names
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.records import (
    Records,
    build_records,
    find_party_files,
    read_records,
)
from parley.client.data.schema import Schema, SchemaError, load_schema
from parley.client.data.schema_inference.draft import infer_schema
from parley.privacy.privacy_warning import PrivacyWarning
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import MODEL_BY_LABEL_KEY, load_job
from parley.server.jobs.parties_and_data import DataSection
from parley.server.jobs.section_base import JobError
from parley.server.jobs.unused_keys import check_unused_keys
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

MEMORY = ("memory", "memory-*")
"""`data.source` of a job with data in memory: one table, and one per party."""


@dataclass(frozen=True, kw_only=True)
class InMemoryData:
    """Data in memory.

    Attributes:
        frames: one table for all parties, or each party's; or files that the job does not name.
        is_one_per_party: which of the two.
    """

    frames: tuple[MemoryTable | Path, ...]
    is_one_per_party: bool
    schema: Schema


def adapt_job_to_memory(job: Job, given: InMemoryData) -> Job:
    """Return the job without a file as its source and, if it names no model, with the label's
    model.
    """
    if not job.run.in_process:
        raise JobError(
            f"Expected run.engine = 'fast' with data in memory, got {job.run.engine!r}: real "
            "parties read their own files."
        )
    named = job.data.source
    if job.data.query or named not in ("", DataSection.model_fields["source"].default, *MEMORY):
        raise JobError(
            f"Expected data= or data.source, got both: the job reads {named!r}. Leave out data=, "
            'or give the job data.source = "".'
        )
    section = job.data.model_copy(update={"source": MEMORY[given.is_one_per_party]})
    job = job.model_copy(update={"data": section})
    try:
        check_unused_keys(job)
    except ValueError as error:
        raise JobError(str(error)) from None
    label = given.schema.label
    kind = next(kind for key, kind in MODEL_BY_LABEL_KEY.items() if getattr(label, key) is not None)
    if kind == job.model.kind or "kind" in job.model.model_fields_set:
        return job
    return load_job(values=job.to_values(), overrides=[f"model.kind={kind}"])


def build_in_memory_data(
    job: Job, data: Any, *, schema: Schema | str | Path | None = None, label: str | None = None
) -> InMemoryData:
    """Return the caller's data with their schema.

    Args:
        data: of a kind that `parley.client.data.data_sources.build_memory_table` takes, or a list
            with one per party.
        label: then the label's column; default the last one.

    Raises:
        DataError: none of these kinds, or no schema can be inferred from them.
        SchemaError: the schema's file cannot be read; `label` together with a schema.
        JobError: a list of another length than parties.count.
    """
    named = schema if schema is not None else job.data.data_schema or None
    known = named if isinstance(named, Schema) or named is None else load_schema(named)
    if known is not None and label is not None:
        raise SchemaError("Expected label without a schema, which names it, got both.")
    parts: list[Any] = [data]
    if isinstance(data, str | Path):
        parts = list(find_party_files(str(data)))
    elif isinstance(data, list):
        parts = data
    several = isinstance(data, list) or len(parts) > 1
    frames = tuple(
        part
        if isinstance(part, Path)
        else build_memory_table(
            part, schema=known, name=f"in memory, party {place}" if several else "in memory"
        )
        for place, part in enumerate(parts, 1)
    )
    if several and len(frames) != job.parties.count:
        raise JobError(
            f"Expected parties.count = {len(frames)}, the length of the list of one per party, got "
            f"{job.parties.count}."
        )
    if known is None:
        # A network has an input for each column of an array, even for a constant one.
        kept = job.model.learns == "network" and not any(map(has_names, parts))
        known = _infer_frame_schema(frames, label, keep_numbers=kept)
    return InMemoryData(frames=frames, is_one_per_party=several, schema=known)


def _infer_frame_schema(
    frames: tuple[MemoryTable | Path, ...], label: str | None, *, keep_numbers: bool
) -> Schema:
    """Return the schema inferred from all parties' rows; warn that no ε covers it."""
    own = {frame.label for frame in frames if isinstance(frame, MemoryTable)}
    if label is not None and own - {"", label}:
        got = f"label = {label!r}"
        raise DataError(
            "no label beside a pair (X, y), of which y is the label",
            got,
            path=get_source_name(frames[0]),
        )
    draft = infer_schema(*frames, label=label, keep_numbers=keep_numbers)
    doubtful = next(each for each in draft.columns if each.name == draft.label)
    if doubtful.doubt:
        warnings.warn(f"The label {draft.label!r}: {doubtful.doubt}.", stacklevel=4)
    left_out = [f"{each.name!r} ({each.why})" for each in draft.columns if each.is_ignored]
    ignored = f" and ignores {'; '.join(left_out)}" if left_out else ""
    warnings.warn(
        f"The schema was read off the data{ignored}, which epsilon does not cover. Give "
        "the columns' public ranges as schema= or --schema.",
        PrivacyWarning,
        stacklevel=5,
    )
    return Schema.from_toml(draft.text)


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
            f"Expected the data of a job with data.source = {data.source!r}: parley.run(job, "
            "data=…) hands them over, also with resume."
        )
    if not data.data_schema:
        if not (data.query or data.has_several_files or Path(data.source).is_file()):
            raise DataError("a file", "nothing there (check data.source)", path=data.source)
        asked = " --query …" if data.query else ""
        raise JobError(
            f"Expected data.schema with data.source = {data.source!r}, got none. "
            f"`parley schema infer {data.source}{asked}` writes a first one to review. "
            f"Bundled sources, which need none: {', '.join(BUNDLED)}."
        )
    own = load_schema(data.data_schema)
    check_data_keys(job, own)
    schema = _get_cell_schema(job, own)
    if data.has_several_files:
        return _join_parties(job, schema, find_party_files(data.source))
    source = query_of(data) if data.query else data.source
    return (*_sample_records(job, (source,), schema, rng), None)


def query_of(data: DataSection) -> SqlQuery:
    """Return the query of a job's records."""
    return SqlQuery(database=data.source, query=data.query, timeout_s=data.query_timeout)


def _join_parties(
    job: Job, schema: Schema, sources: Sequence[Path | MemoryTable]
) -> tuple[Records, int, list[int]]:
    """Return the records of one file per party."""
    kind = job.label_kind(schema.classes)
    divided = build_division(job)
    parts = [read_records(source, schema, kind, division=divided) for source in sources]
    if len(parts) != job.parties.count:
        raise JobError(
            f"Expected parties.count = {len(parts)}, the number of files that "
            f"{job.data.source} names, got {job.parties.count}: --set parties.count={len(parts)}."
        )
    joined = Records(
        features=np.concatenate([part.features for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        feature_names=parts[0].feature_names,
        contents=sum_contents([part.contents for part in parts if part.contents]),
    )
    return joined, schema.classes, [len(part) for part in parts]


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
        records = read_records(
            sources,
            schema,
            kind,
            group_column=column,
            sample=sample,
            rng=rng,
            division=build_division(job),
        )
    except (DataError, SchemaError):
        raise
    except ValueError as error:  # More records were requested than there are.
        raise JobError(f"data.records: {error}") from error
    return records, schema.classes


def check_source_named(job: Job) -> None:
    """Raise JobError if the job's data have no name, or a schema that is not read."""
    data = job.data
    if not data.source:
        given = f" with data.schema = {data.data_schema!r}" if data.data_schema else ""
        raise JobError(
            f"Expected data.source{given}, got none. It names the records: a file, a glob with one "
            f"file a party, a database, or a bundled source ({', '.join(BUNDLED)})."
        )
    check_own_schema(job)


def read_test(job: Job, classes: int) -> Records:
    """Return the records of `data.test-source`."""
    schema = load_test_schema(job, classes)
    own = _get_cell_schema(job, schema)
    return read_records(job.data.test_source, own, job.label_kind(schema.classes))


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
