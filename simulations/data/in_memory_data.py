"""Data in memory, instead of the files that a job names."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from parley.client.data.data_error import DataError
from parley.client.data.data_sources import FormattedFile, MemoryTable, get_source_name
from parley.client.data.file_format_overrides import is_file_list, list_files
from parley.client.data.memory_columns import build_memory_table, has_names
from parley.client.data.party_file_pattern import find_party_files
from parley.client.data.schema import Schema, SchemaError, load_schema
from parley.client.data.schema_inference.schema_draft import infer_schema
from parley.privacy.privacy_warning import PrivacyWarning
from parley.server.jobs.external_references import MEMORY
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import MODEL_BY_LABEL_KEY, load_job
from parley.server.jobs.parties_and_data import DataSection
from parley.server.jobs.section_base import JobError
from parley.server.jobs.unused_keys import check_unused_keys
from parley.simulations.data.source_records import InMemoryData


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
        data: of a kind that `parley.client.data.memory_columns.build_memory_table` takes, or a list
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
    label = None if label is None else str(label)  # pandas names columns by numbers, too
    parts: list[Any] = [data]
    if isinstance(data, str | Path):
        parts = list(find_party_files(str(data)))
    elif is_file_list(data):
        parts = list(list_files(data))
    elif isinstance(data, list):
        parts = data
    several = isinstance(data, list) or len(parts) > 1
    frames = tuple(
        part
        if isinstance(part, Path | FormattedFile)
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
        plain = tuple(frame for frame in frames if not isinstance(frame, FormattedFile))
        if len(plain) < len(frames):
            raise SchemaError(
                "Expected a schema for files that are written differently, got none: schema=FILE, "
                'or {"age": (0, 120), …} with label=.'
            )
        known = _infer_frame_schema(plain, label, keep_numbers=kept)
    return InMemoryData(frames=frames, is_one_per_party=several, schema=known)


def _infer_frame_schema(
    frames: tuple[MemoryTable | Path, ...], label: str | None, *, keep_numbers: bool
) -> Schema:
    """Return the schema inferred from all parties' rows; warn that no ε covers it."""
    own = {frame.label for frame in frames if isinstance(frame, MemoryTable)}
    if label is not None and own - {"", label}:
        raise DataError(
            "no label together with a pair (X, y), in which y is the label",
            f"label = {label!r}",
            path=get_source_name(frames[0]),
        )
    draft = infer_schema(*frames, label=label, keep_numbers=keep_numbers)
    doubtful = next(each for each in draft.columns if each.name == draft.label)
    if doubtful.doubt:
        warnings.warn(f"The label {draft.label!r}: {doubtful.doubt}.", stacklevel=4)
    left_out = [f"{each.name!r} ({each.why})" for each in draft.columns if each.is_ignored]
    ignored = f" and ignores {'; '.join(left_out)}" if left_out else ""
    warnings.warn(
        f"The schema was inferred from the data{ignored}, which epsilon does not cover. Give "
        "the columns' public ranges as schema= or --schema.",
        PrivacyWarning,
        stacklevel=5,
    )
    return Schema.from_toml(draft.text)
