"""`Records`: a party's training records, a function of only its file and the public schema.

Features are float64 rows with ‖x‖₂ ≤ 1. Labels are −1/+1 (logistic), classes 0..K−1 (softmax) or
targets in [−1, 1] (ridge). Nothing is estimated from the data.

    >>> import numpy as np
    >>> schema = Schema.from_toml('''
    ... [columns]
    ... age = { kind = "numeric", range = [0, 100] }
    ... sick = { kind = "label", positive = "yes", negative = "no" }
    ... ''')
    >>> table = {"age": np.array([50, 75]), "sick": np.array(["no", "yes"])}
    >>> records = build_records(table, schema, "logistic")
    >>> records.features.tolist(), records.labels.tolist()
    ([[0.0], [0.5]], [-1.0, 1.0])
"""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.block_selection import select_blocks
from parley.client.data.budget_blocks import Division
from parley.client.data.cell_parsing import (
    read_feature_cells,
    read_group_texts,
    select_labelled,
)
from parley.client.data.column_types import CategoricalColumn
from parley.client.data.content_digest import ContentDigest, sum_contents
from parley.client.data.data_error import DataError, NoRecords
from parley.client.data.data_sources import Source, SqlQuery, get_source_name
from parley.client.data.label_readers import LABEL_READERS
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FeatureColumn, Schema, check_label
from parley.client.data.table_building import build_table
from parley.client.data.table_digest import compute_row_order, digest_table, encode_cells
from parley.client.data.table_readers import read_tables

_CHUNK_ROWS = 4096
"""Rows filled at a time, so that the rows being written stay in cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """N records ready to learn from.

    Attributes:
        features: `[N, p]` float64, ‖row‖₂ ≤ 1.
        labels: `[N]` float64 (−1/+1, or targets in [−1, 1]) or int64 (classes 0..K−1).
        groups: `[N]` texts of the column that assigns records to parties.
        clamped: number of a column's values that were outside its range and were clamped. It is
            read from the data. It is for the person who holds them, and must never be sent.
        contents: digest of all files read, even if only some records were drawn; None if none was
            read.
        buffer: `[N, p + 1]` memory whose first columns are `features`, if the caller may reuse it
            for rows derived from them.
    """

    features: NDArray[np.float64]
    labels: NDArray[Any]
    feature_names: tuple[str, ...]
    groups: NDArray[np.str_] | None = None
    clamped: Mapping[str, int] = field(default_factory=dict)
    contents: ContentDigest | None = None
    buffer: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.shape[1] != len(self.feature_names):
            expected = f"features of shape [N, {len(self.feature_names)}]"
            raise ValueError(f"Expected {expected}, got {self.features.shape}.")
        for name, values in (("labels", self.labels), ("groups", self.groups)):
            if values is not None and values.shape != (len(self),):
                raise ValueError(f"Expected {len(self)} {name}, got shape {values.shape}.")

    def __len__(self) -> int:
        return int(self.features.shape[0])

    def take(self, rows: NDArray[np.integer[Any]]) -> Records:
        """Return the records of the chosen rows, in the order given. `clamped` covers all rows."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(
            self, features=self.features[rows], labels=self.labels[rows], groups=groups, buffer=None
        )


def read_records(
    paths: Source | Sequence[Source],
    schema: Schema,
    model_kind: str,
    *,
    group_column: str | None = None,
    sample: int | None = None,
    rng: np.random.Generator | None = None,
    division: Division | None = None,
) -> Records:
    """Read the records of one file, or of several files one after another.

    Args:
        group_column: a column of the schema (of any kind) that is returned as text in `groups`.
        sample: number of rows to draw without replacement, in the order of the files, by `rng`. The
            rows of a query are ordered by their contents, in whatever order the database sends
            them.
        division: the division into blocks, and the blocks that are read.

    Raises:
        DataError: the data do not fit the schema. It names file, line or row, column, what was
            expected and what came.
        SchemaError: the schema's label has no reading for `model_kind`.
    """
    check_label(schema, model_kind)
    if group_column is not None and group_column not in schema.columns:
        raise ValueError(f"Expected a group column of the schema, got {group_column!r}.")
    keep = [] if group_column is None else [group_column]
    if division is not None:
        division.check(schema)
        keep.append(division.column)
    several = [paths] if isinstance(paths, Source) else list(paths)
    if not several:
        raise ValueError("Expected at least one file, got none.")
    contents: list[ContentDigest] = []
    digests: list[NDArray[np.uint64]] = []
    ties: list[NDArray[np.uint64]] = []
    drawn_from: list[RawTable] = []
    parts: list[Records] = []
    try:
        for path in several:
            for labelled_table in _read_labelled_tables(
                path, schema, keep, sampled=sample is not None
            ):
                blocks, positions, table = select_blocks(labelled_table, division)
                contents.append(digest_table(labelled_table, schema, blocks))
                if not table.rows:
                    continue
                digests.append(contents[-1].digests[positions])
                if group_column is not None and isinstance(path, SqlQuery):
                    ties.append(encode_cells(table, group_column))
                if sample is None:
                    parts.append(_encode(table, schema, model_kind, group_column))
                else:
                    drawn_from.append(table)
        if division is not None and not (parts or drawn_from):
            raise NoRecords(division.read, path=get_source_name(several[0]))
        order = compute_row_order(digests, ties) if isinstance(several[0], SqlQuery) else None
        if sample is not None:
            order, sampled_tables = _draw(drawn_from, sample, rng, order)
            parts = [_encode(table, schema, model_kind, group_column) for table in sampled_tables]
        return replace(_join(parts, order), contents=sum_contents(contents))
    except MemoryError as error:
        raise DataError(
            "records that fit into memory", "more", path=get_source_name(several[0])
        ) from error


def _read_labelled_tables(
    path: Source, schema: Schema, keep: Collection[str], *, sampled: bool
) -> Iterator[RawTable]:
    """Yield the file's batches without the records that the schema's rule on labels leaves out."""
    found = False
    for table in read_tables(path, schema, keep=keep, sampled=sampled):
        kept = select_labelled(table, schema)
        if kept.rows:
            found = True
            yield kept
    if not found:
        raise DataError("at least one record with a label", "none", path=get_source_name(path))


def find_party_files(pattern: str) -> list[Path]:
    """Return the files that match a glob (** descends), at least one; party-2 before party-10."""
    found = [Path(name) for name in glob.glob(pattern, recursive=True)]
    files = sorted((path for path in found if path.is_file()), key=_get_sort_key)
    if not files:
        raise DataError("at least one file, one per party", "none", path=pattern)
    return files


def build_records(
    columns: Mapping[str, NDArray[Any]],
    schema: Schema,
    model_kind: str,
    *,
    source: str = "in memory",
) -> Records:
    """Build the records of columns in memory, `[N]` each (`[N, …]` for kind "array")."""
    check_label(schema, model_kind)
    used = list(schema.used)
    if absent := [name for name in used if name not in columns]:
        raise DataError("the columns of the schema", f"no column {absent}", path=source)
    table = build_table({name: columns[name] for name in used}, schema, path=source)
    kept = select_labelled(table, schema)
    if not kept.rows:
        raise DataError("at least one record with a label", "none", path=source)
    return _encode(kept, schema, model_kind, None)


def _get_sort_key(path: Path) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _draw(
    tables: list[RawTable],
    sample: int,
    rng: np.random.Generator | None,
    order: NDArray[np.int64] | None,
) -> tuple[NDArray[np.int64] | None, list[RawTable]]:
    """Return the order of the drawn rows, if the rows have one, and the rows as they came."""
    if rng is None:
        raise ValueError("Expected rng with sample, got None.")
    ends = np.cumsum([0] + [table.rows for table in tables])
    if not 1 <= sample <= ends[-1]:
        raise ValueError(f"Expected a sample of 1 to {ends[-1]} records, got {sample}.")
    chosen = np.sort(rng.choice(ends[-1], sample, replace=False))
    if (
        order is not None
    ):  # the sample is of the ordered rows, so that it does not depend on the database's order
        sampled_rows = order[chosen]
        chosen, order = np.sort(sampled_rows), np.argsort(np.argsort(sampled_rows))
    sampled_tables = [
        table.take(chosen[(chosen >= begin) & (chosen < end)] - begin)
        for table, begin, end in zip(tables, ends[:-1], ends[1:], strict=True)
    ]
    return order, [table for table in sampled_tables if table.rows]


def _join(parts: list[Records], order: NDArray[np.int64] | None = None) -> Records:
    """Join the records of all parts. Each part is freed once copied, to save memory.

    Args:
        order: `[N]` index of the record at each position; None: as they came.
    """
    if len(parts) == 1 and order is None:
        return parts[0]
    groups = [part.groups for part in parts if part.groups is not None]
    labels = np.concatenate([part.labels for part in parts])
    names = parts[0].feature_names
    clamped = {
        name: sum(p.clamped.get(name, 0) for p in parts) for p in parts for name in p.clamped
    }
    features = np.empty((len(labels), len(names)))
    positions = None if order is None else np.argsort(order)
    end = len(labels)
    while parts:
        part = parts.pop()
        rows = slice(end - len(part), end)
        features[rows if positions is None else positions[rows]] = part.features
        end -= len(part)
    joined_groups = np.concatenate(groups) if groups else None
    return Records(
        features=features,
        labels=labels if order is None else labels[order],
        feature_names=names,
        groups=joined_groups if joined_groups is None or order is None else joined_groups[order],
        clamped=clamped,
    )


def find_column_faults(table: RawTable, schema: Schema, names: Sequence[str]) -> list[DataError]:
    """Return the first fault of each of these columns that has one."""
    faults, features = [], schema.features
    for name in names:
        try:
            read_feature_cells(table, name, features[name])
        except DataError as fault:
            faults.append(fault)
    return faults


def encode_features(table: RawTable, schema: Schema) -> tuple[NDArray[np.float64], dict[str, int]]:
    """Return `[N, p]` the features of a table's rows, and the number of clamped values per column.

    No label is needed.

    Raises:
        DataError: the first cell of each column that does not fit the schema.
    """
    clamped: dict[str, int] = {}
    values: list[tuple[int, FeatureColumn, NDArray[Any]]] = []
    faults: list[DataError] = []
    begin = 0
    for name, column in schema.features.items():
        try:
            cells, outside = read_feature_cells(table, name, column)
        except DataError as fault:
            faults.append(fault)
            continue
        values.append((begin, column, cells))
        if outside:
            clamped[name] = outside
        begin += column.width
    if faults:
        raise DataError.combine(faults)
    features = np.zeros((table.rows, schema.dimension))
    for first in range(0, table.rows, _CHUNK_ROWS):
        rows = slice(first, first + _CHUNK_ROWS)
        chunk = features[rows]
        for at, column, cells in values:
            if isinstance(column, CategoricalColumn):
                chunk[np.arange(len(chunk)), at + cells[rows]] = 1.0
            else:
                encoded_cells = column.encode(cells[rows].astype(np.float64))
                width = column.width
                chunk[:, at : at + width] = encoded_cells.reshape(len(chunk), width)
        schema.scale_rows(chunk)
    return features, clamped


def _encode(table: RawTable, schema: Schema, model_kind: str, group_column: str | None) -> Records:
    features, clamped = encode_features(table, schema)
    return Records(
        features=features,
        labels=LABEL_READERS[model_kind](table, schema),
        feature_names=schema.feature_names,
        groups=None if group_column is None else read_group_texts(table, group_column),
        clamped=clamped,
    )
