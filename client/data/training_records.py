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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.cell_parsing import read_feature_cells, read_group_texts, select_labelled
from parley.client.data.column_types import CategoricalColumn
from parley.client.data.data_error import DataError
from parley.client.data.label_reader_registry import LABEL_READERS
from parley.client.data.memory_table_format import build_table
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FeatureColumn, Schema, check_label

if TYPE_CHECKING:
    from parley.client.data.multiset_digest import ContentDigest
    from parley.client.data.sparse_rows import FeatureRows, RowStorage

_CHUNK_ROWS = 4096
"""Rows filled at a time, so that the rows being written stay in cache."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Records:
    """N records ready to learn from.

    Attributes:
        features: `[N, p]` float64, ‖row‖₂ ≤ 1; sparse only if the caller permits it.
        labels: `[N]` float64 (−1/+1, or targets in [−1, 1]) or int64 (classes 0..K−1).
        groups: `[N]` texts of the column that assigns records to parties.
        clamped: number of a column's values that were outside its range and were clamped. It is
            read from the data. It is for the person who holds them, and must never be sent.
        contents: digest of all files read, even if only some records were drawn; None if none was
            read.
        buffer: `[N, p + 1]` memory whose first columns are `features`, if the caller may reuse it
            for rows derived from them.
    """

    features: FeatureRows
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

    @property
    def row_digests(self) -> NDArray[np.uint64]:
        """`[K, 3]` the digests of the rows that were read; empty if they are unknown."""
        return np.empty((0, 3), np.uint64) if self.contents is None else self.contents.digests

    def take(self, rows: NDArray[np.integer[Any]]) -> Records:
        """Return the records of the chosen rows, in the order given. `clamped` covers all rows."""
        groups = None if self.groups is None else self.groups[rows]
        features, labels = self.features[rows], self.labels[rows]
        return replace(self, features=features, labels=labels, groups=groups, buffer=None)


def build_records(
    columns: Mapping[str, NDArray[Any]], schema: Schema, model_kind: str, source: str = "in memory"
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
    return encode_records(kept, schema, model_kind, None)


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


def encode_records(
    table: RawTable,
    schema: Schema,
    model_kind: str,
    group_column: str | None,
    storage: RowStorage | None = None,
) -> Records:
    """Return the records of a table, their features and labels encoded."""
    features, clamped = encode_features(table, schema)
    return Records(
        features=features if storage is None else storage.pack(features),
        labels=LABEL_READERS[model_kind](table, schema),
        feature_names=schema.feature_names,
        groups=None if group_column is None else read_group_texts(table, group_column),
        clamped=clamped,
    )
