"""Data that the caller hands over in memory, with the schema that reads them.

They go the way of files: one for all parties, split as the job says, or one a party. A job names
them `data.source = "memory"` ("memory-*" for one a party), which is also their name in the ledger
unless the job gives one (`privacy.dataset`). The ledger knows them by the digest of their rows, and
so as the same data that a file holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parley.client.data.frames import Frame, frame_of
from parley.client.data.schema import Schema, SchemaError, load_schema
from parley.client.data.table import DataError
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError

MEMORY = ("memory", "memory-*")
"""`data.source` of a job whose data are handed over: a table, and one a party."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """Data in memory.

    Attributes:
        frames: of one table for all parties, or of each party.
        one_a_party: which of both.
        inferred: the schema was read off the data, which no ε covers.
    """

    frames: tuple[Frame, ...]
    one_a_party: bool
    schema: Schema
    inferred: bool


def of_memory(job: Job, data: Any) -> Job:
    """The job, naming no file as its source."""
    if not job.run.in_process:
        raise JobError(
            f"Expected run.engine = 'fast' with data in memory, got {job.run.engine!r}: real "
            "parties read their own files."
        )
    section = job.data.model_copy(update={"source": MEMORY[isinstance(data, list)]})
    return job.model_copy(update={"data": section})


def given_data(
    job: Job, data: Any, *, schema: Schema | str | Path | None = None, label: str | None = None
) -> Given:
    """What the caller hands over, with its schema.

    Args:
        data: of a kind that `parley.client.data.frames.frame_of` takes, or a list of one a party.
        schema: or the file it is in. Without any it is read off the data.
        label: then the label's column; default the last one.

    Raises:
        DataError: none of these kinds, or no schema can be read off them.
        SchemaError: the schema's file can't be read; `label` beside a schema.
        JobError: a list of another length than parties.count.
    """
    named = schema if schema is not None else job.data.data_schema or None
    known = named if isinstance(named, Schema) or named is None else load_schema(named)
    if known is not None and label is not None:
        raise SchemaError("Expected label without a schema, which names it, got both.")
    several = isinstance(data, list)
    parts = list(data) if several else [data]
    names = [f"in memory, party {at + 1}" if several else "in memory" for at in range(len(parts))]
    frames = tuple(
        frame_of(part, schema=known, name=name) for part, name in zip(parts, names, strict=True)
    )
    if several and len(frames) != job.parties.count:
        raise JobError(
            f"Expected parties.count = {len(frames)}, the length of the list of one a party, got "
            f"{job.parties.count}."
        )
    inferred = known is None
    if known is None:
        from parley.client.data.schema_inference import infer_schema  # noqa: PLC0415 - start-up: `plan` reads no table (polars takes .11 s)

        known = Schema.from_toml(infer_schema(_joined(frames), label=label).text)
    return Given(frames=frames, one_a_party=several, schema=known, inferred=inferred)


def _joined(frames: tuple[Frame, ...]) -> Frame:
    """All parties' rows, to read one schema off."""
    if len(frames) == 1:
        return frames[0]
    first = frames[0].columns
    for frame in frames[1:]:
        if set(frame.columns) != set(first):
            got = sorted(frame.columns)
            raise DataError(
                f"the columns {sorted(first)} in every party", f"{got}", path=frame.name
            )
    try:
        columns = {n: np.concatenate([each.columns[n] for each in frames]) for n in first}
    except ValueError as error:
        raise DataError("columns of one shape in every party", None, path="in memory") from error
    return Frame(columns=columns)
