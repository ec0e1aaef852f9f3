"""A check of a file against a schema that reports all differences at once.

A run stops at the first cell that the schema does not allow. This check applies the same readers to
each column again and again, each time without the values already found. It therefore reports
exactly what a run would refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.client.data.cell_parsing import find_missing_labels, read_feature_cells
from parley.client.data.column_names import get_file_format, read_column_names
from parley.client.data.column_types import LabelColumn
from parley.client.data.csv_detection import find_encoding_remedy, find_separator_fault
from parley.client.data.csv_reader import read_csv_batches
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import SqlQuery
from parley.client.data.label_reader_registry import LABEL_READERS
from parley.client.data.raw_table import RawTable, format_positions
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.table_reading import read_tables
from parley.safe_io.plurals import format_noun
from parley.safe_io.toml_writing import format_toml_key

_MAX_VALUES = 20
"""Maximum number of different values that are listed per column."""

_MAX_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class CheckedFile:
    """Why a run would refuse the file, and what it silently does to the records."""

    records: int
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclass(kw_only=True)
class _Fault:
    """One value that a column does not allow: its count and its first lines."""

    count: int = 0
    row_numbers: list[int] = field(default_factory=list)
    unit: str = "row"

    def add(self, table: RawTable, rows: NDArray[np.int64]) -> None:
        self.count += len(rows)
        self.unit = table.row_unit
        wanted = rows[: max(0, _MAX_SHOWN - len(self.row_numbers))]
        self.row_numbers += [table.row_number(int(row)) for row in wanted]


def check_file(path: str | Path | SqlQuery, schema: Schema) -> CheckedFile:
    """Return all differences between a file, or a query's rows, and a schema."""
    names, csv, needed = read_column_names(path, schema.file), None, schema.columns
    if isinstance(path, SqlQuery):
        needed = schema.used
    elif get_file_format(path, schema.file) == "csv":
        csv = path
    if csv and not schema.file.header:
        names = list(schema.columns)
    one_column = len(names) == 1 < len(schema.columns)
    if csv and one_column and (fault := find_separator_fault(csv, schema.file)):
        return CheckedFile(records=0, problems=(str(fault),), remarks=())
    counts = Counter(names)
    problems = [f"Column {name!r} of the schema is not in the file." for name in needed
                 if name not in counts]  # fmt: skip
    problems += [
        f"Column {name!r} of the file is not in the schema: "
        f'{format_toml_key(name)} = {{ kind = "ignore" }} leaves it out.'
        for name in names
        if name not in schema.columns
    ]
    twice = sorted(name for name, count in counts.items() if count > 1)
    problems += [f"Column {name!r} occurs more than once." for name in twice]
    there = [name for name in schema.used if counts[name] == 1]
    if not there:
        return CheckedFile(records=0, problems=tuple(problems), remarks=())
    walk = _FileChecker(schema, there)
    try:
        for table in read_tables(path, schema, only=there):
            walk.take(table)
    except DataError as error:
        ragged = None
        if csv and error.row and error.row > schema.file.header and not error.column:
            ragged = _find_ragged_records(csv, schema.file, len(names))
        problems.append(ragged or str(error))
    remedy = find_encoding_remedy(csv, schema.file.encoding) if csv else ""
    return CheckedFile(
        records=walk.records,
        problems=(*problems, *walk.list_problems()),
        remarks=(*walk.list_remarks(), *([remedy] if remedy else [])),
    )


class _FileChecker:
    """A checker that goes over a file's batches and collects what its columns do not allow."""

    def __init__(self, schema: Schema, names: list[str]) -> None:
        self._schema, self._names = schema, names
        # Both are rebuilt at every call, so they are stored once here.
        self._features, self._label = schema.features, next(iter(schema.labels), "")
        self.records = 0
        self._faults: dict[str, dict[str, _Fault]] = {name: {} for name in names}
        self._clamped = dict.fromkeys(names, 0)
        self._dropped = 0

    def take(self, table: RawTable) -> None:
        """Check the next batch."""
        self.records += table.rows
        labels = table
        if self._schema.labels and self._label in self._names:
            missing = find_missing_labels(table.select_columns([self._label]), self._schema)
            if self._schema.label.missing == "drop":
                self._dropped += len(missing)
                labels = table = table.take(np.setdiff1d(np.arange(table.rows), missing))
            elif len(missing):
                what = 'Expected a label in every record (missing = "drop" leaves others out)'
                fault = self._faults[self._label].setdefault(what, _Fault())
                fault.add(table, missing)
                labels = table.take(np.setdiff1d(np.arange(table.rows), missing))
        for name in self._names:
            column = (labels if name == self._label else table).select_columns([name])
            for read in self._list_readers(name):
                self._check(column, name, read)

    def _list_readers(self, name: str) -> Iterator[Callable[[RawTable], object]]:
        column = self._schema.columns[name]
        if isinstance(column, LabelColumn):
            given = {"logistic": column.positive, "softmax": column.classes, "ridge": column.range}
            for kind, said in given.items():
                if said is not None:
                    yield partial(LABEL_READERS[kind], schema=self._schema)
        else:
            yield partial(read_feature_cells, name=name, column=self._features[name])

    def _check(self, table: RawTable, name: str, read: Callable[[RawTable], object]) -> None:
        """Record every value of a column that the reader refuses."""
        faults = self._faults[name]
        if not table.rows:
            return
        if name in table.arrays:
            places, first = np.arange(table.rows), np.arange(table.rows)
        else:
            # A cell is read by itself, so one of several equal cells is enough.
            ranks = table.get_column(name).rank("dense").fill_null(0).to_numpy()
            _, first, places = np.unique(ranks, return_index=True, return_inverse=True)
        open_ = np.arange(len(first))
        while len(open_) and len(faults) <= _MAX_VALUES:
            tried = table.take(first[open_])
            try:
                result = read(tried)
            except DataError as error:
                what = f"Expected {error.expected}, got {error.got}"
                if error.row is None:  # the type of the whole column
                    faults.setdefault(what, _Fault()).add(table, np.arange(table.rows))
                    return
                at = next(k for k in range(tried.rows) if tried.row_number(k) == error.row)
                rows = np.flatnonzero(places == open_[at])
                faults.setdefault(what, _Fault()).add(table, rows)
                open_ = np.delete(open_, at)
            else:
                column = self._features.get(name)
                # A feature's reader returns its cells and how many of them it clamps.
                if column is not None and isinstance(result, tuple) and result[1]:
                    sound = np.flatnonzero(np.isin(places, open_))
                    self._clamped[name] += read_feature_cells(table.take(sound), name, column)[1]
                return

    def list_problems(self) -> list[str]:
        """Return a line for every value that a column does not allow."""
        lines = []
        for name, faults in self._faults.items():
            listed = list(faults.items())
            lines += [
                f"Column {name!r}, "
                f"{format_positions(fault.unit, fault.row_numbers, fault.count)}: {what}."
                for what, fault in listed[:_MAX_VALUES]
            ]
            if len(listed) > _MAX_VALUES:
                lines.append(f"Column {name!r}: further values that the schema does not allow.")
        return lines

    def list_remarks(self) -> tuple[str, ...]:
        """Return what a run would silently do to the records."""
        records = f"{self.records:,}"
        lines = [
            f"Column {name!r}: {count:,} of {records} values outside the range: clamped to it."
            for name, count in self._clamped.items()
            if count
        ]
        if self._dropped:
            of = format_noun(self.records, "record")
            lines.append(f"{self._dropped:,} of {records} {of} without a label: left out.")
        return tuple(lines)


def _find_ragged_records(path: str | Path, file: FileFormat, width: int) -> str | None:
    """Return the fault of CSV records with too few or too many fields; None if there are none."""
    lines = []
    try:
        for batch in read_csv_batches(path, separator=file.separator, encoding=file.encoding):
            lines += [line for line, fields in batch.parse_records() if len(fields) != width]
    except DataError:
        return None
    if not lines:
        return None
    where = format_positions("line", lines[:_MAX_SHOWN], len(lines))
    return f"Expected {width} fields in every record, got others in {where}."
