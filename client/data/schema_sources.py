"""The columns of a file whose schema isn't known yet, and the lines its records are on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from numpy.typing import NDArray

from parley.client.data.csv_text import CsvBatch, csv_tables
from parley.client.data.frames import Frame
from parley.client.data.memory import Room
from parley.client.data.readers import parquet_frames, read_arrays
from parley.client.data.schema import FileFormat
from parley.client.data.table import DataError, frame_size

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file's columns as they are written.

    Attributes:
        columns: one value a record; text where the file is a CSV, null where a cell is empty.
        arrays: `[N, …]` of a .npz.
        texts: whether numbers, too, are text.
        unit: what `number` counts, "line" or "row".
        number: the line or row (from 1) of record k (from 0).
        names_are_numbers: whether a CSV's header looks like a record.
    """

    columns: dict[str, pl.Series]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    texts: bool = False
    unit: str = "row"
    number: Callable[[int], int] = lambda record: record + 1
    names_are_numbers: bool = False


def csv_source(path: str | Path, file: FileFormat, room: Room) -> Source:
    """The columns of a CSV, as text.

    Raises:
        DataError: as `csv_tables`; a name that is there twice; more than there is room for.
    """

    header: list[str] = []

    def choose(names: list[str] | None, width: int) -> list[str]:
        if names is None:
            return [f"column_{at}" for at in range(1, width + 1)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            got = f"{', '.join(map(repr, twice))} more than once"
            raise DataError("every column named once", got, path=path)
        header.extend(names)
        return names

    frames: list[pl.DataFrame] = []
    begins: list[int] = []
    batches: list[CsvBatch] = []
    size = rows = 0
    for batch, frame in csv_tables(path, file, choose):
        size += 2 * frame_size(frame)
        room.check_bytes(size, path=path)
        room.check_left(path)
        frames.append(frame)
        begins.append(rows)
        rows += frame.height
        # Without quotation marks every line is a record, and its text isn't needed to count.
        text = batch.text if '"' in batch.text else ""
        batches.append(replace(batch, text=text))
    if not frames:
        raise DataError("at least one record", "none", path=path)

    def number(record: int) -> int:
        at = bisect_right(begins, record) - 1
        return batches[at].line_of(record - begins[at])

    whole = pl.concat(frames, rechunk=True)
    return Source(
        columns={name: whole[name].alias("") for name in whole.columns},
        texts=True,
        unit="line",
        number=number,
        names_are_numbers=bool(header) and all(_is_number(name) for name in header),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parquet_source(path: str | Path, room: Room) -> Source:
    """The columns of a Parquet file.

    Raises:
        DataError: as `parquet_frames`; more than there is room for.
    """

    size = 0
    frames: list[pl.DataFrame] = []
    for _, frame in parquet_frames(path, lambda names, rows: names):
        size += 2 * frame_size(frame)
        room.check_bytes(size, path=path)
        room.check_left(path)
        frames.append(frame)
    if not frames:
        raise DataError("at least one record", "none", path=path)
    whole = pl.concat(frames, rechunk=True)
    return Source(columns={name: whole[name].alias("") for name in whole.columns})


def npz_source(path: str | Path, label: str | None, room: Room) -> Source:
    """The flat columns of a .npz, the label's last, and its arrays.

    Raises:
        DataError: as `read_arrays`.
    """

    return _arrays_source(read_arrays(path, lambda names: names, room), label)


def frame_source(frame: Frame, label: str | None) -> Source:
    """The columns of what is in memory; texts that mean a missing value as in a file."""
    return _arrays_source(dict(frame.columns), label)


def _arrays_source(found: dict[str, NDArray[Any]], label: str | None) -> Source:
    flat = {n: pl.Series(n, a) for n, a in found.items() if a.ndim == 1 and a.dtype.kind in "biufU"}
    if label is None and flat:
        # Without a word on it, the label is the longest flat array that goes with another array.
        lengths = [len(a) for a in found.values() if a.ndim > 1]
        fitting = [name for name in flat if len(flat[name]) in lengths]
        label = max(fitting, key=lambda name: len(flat[name]), default=None)
    if label is not None and label in flat:
        flat[label] = flat.pop(label)
    return Source(columns=flat, arrays={n: a for n, a in found.items() if n not in flat})
