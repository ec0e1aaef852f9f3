"""Data in memory as the columns of a table.

Data in memory (docs/schema.md) are treated as the columns of one file. A pair (X, y) is treated as
X's columns and y.

Such columns take the same path as a file's (`parley.client.data.table_reading.read_tables`): they
are checked against the schema, counted, and identified by their contents. This module imports
neither torch nor pandas.

    >>> import numpy as np
    >>> build_memory_table((np.array([[1.0, 2.0], [3.0, 4.0]]),
    ...     np.array([0, 1]))).columns["x2"].tolist()
    [2.0, 4.0]
    >>> sorted(build_memory_table({"age": [30, None], "sick": ["no", "yes"]}).columns)
    ['age', 'sick']
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from parley.client.data.column_names import check_unique_names
from parley.client.data.column_types import LONGEST_NUMBER, ArrayColumn
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import IN_MEMORY, Array, MemoryTable
from parley.client.data.label_value_types import describe_label_fault, is_missing
from parley.client.data.schema import Schema

_DOUBLE_BYTES = 8
_EXPECTED = "a frame, columns by name, a pair (X, y), or a Dataset of pairs"


def build_memory_table(
    data: Any, *, schema: Schema | None = None, name: str = IN_MEMORY
) -> MemoryTable:
    """Return the data as columns, named `name` in errors.

    The schema names the columns of arrays, in its order. Without a schema they are x1, x2, … (x if
    a record has an array) and y.
    """
    if isinstance(data, MemoryTable):
        return data
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError("a pair (X, y)", f"a tuple of {len(data)}", path=name)
        return _build_table_from_pair(*data, schema, name)
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        names = _list_column_names(data)
        faults = {str(each): describe_label_fault(data[each]) for each in names}
        return MemoryTable(columns=to_columns(data, schema, name), name=name, label_faults=faults)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "dtype"):
        return _build_table_from_pair(*_stack_pairs(data, name), schema, name)
    raise DataError(_EXPECTED, type(data).__name__, path=name)


def has_names(data: Any) -> bool:
    """Return whether the columns of an input of `build_memory_table` have names."""
    if isinstance(data, tuple) and len(data) == 2:
        data = data[0]
    return isinstance(data, Mapping | MemoryTable) or hasattr(data, "columns")


def to_columns(
    frame: Any, schema: Schema | None = None, where: str | Path = IN_MEMORY
) -> dict[str, Array]:
    """Return the columns of a polars or pandas frame, or of a mapping, as arrays.

    Texts stay texts, with "" for a missing one. Numbers with missing ones among them become floats
    with NaN. A column of shape [N, 1] becomes `[N]`, unless the schema declares an array.
    """
    names = _list_column_names(frame)
    if getattr(getattr(frame, "columns", None), "nlevels", 1) > 1:
        remedy = "frame.columns = ['_'.join(map(str, name)) for name in frame.columns] joins them"
        got = f"names of several levels ({remedy})"
        raise DataError("one name for each column", got, path=where)
    check_unique_names(names, path=where, where="in the frame")
    schema_columns = {} if schema is None else schema.columns
    arrays = {name for name, column in schema_columns.items() if isinstance(column, ArrayColumn)}
    columns = {}
    for name in names:
        cells = _to_array(frame[name])
        if cells.dtype == object and any(map(_is_nested, cells.flat)):
            raise DataError("one value in each cell", "lists", path=where, column=str(name))
        flat = cells.ndim == 2 and cells.shape[1] == 1 and str(name) not in arrays
        columns[str(name)] = cells[:, 0] if flat else cells
    _check_lengths(columns, where)
    return columns


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _check_lengths(columns: Mapping[str, Array], where: str | Path) -> None:
    """Raise DataError if two columns differ in their number of rows."""
    rows = {name: len(cells) if cells.ndim else 0 for name, cells in columns.items()}
    first, *others = rows or [""]
    for name in others:
        if rows[name] != rows[first]:
            got = f"{rows[first]} in {first!r} and {rows[name]} in {name!r}"
            raise DataError("columns of one length, a value per record", got, path=where)


def _get_cells(values: Any) -> Array:
    """Return values as an array, with None for those that a masked array hides."""
    if not isinstance(values, np.ma.MaskedArray) or not np.ma.is_masked(values):
        return np.asarray(values)
    cells = np.array(values.data, object)
    cells[np.ma.getmaskarray(values)] = None
    return cells


def _to_array(values: Any) -> Array:
    if isinstance(values, pl.Series) and (
        values.dtype.is_decimal() or (values.dtype.is_integer() and values.null_count())
    ):
        # As an array, polars converts these to floats.
        values = np.array(values.to_list(), object)
    cells = _get_cells(values)
    if cells.dtype.kind == "f" and cells.dtype.itemsize > _DOUBLE_BYTES:
        cells = cells.astype(np.float64)  # no reader knows longer ones
    if cells.dtype.kind == "f" and "int" in str(getattr(values, "dtype", "")).lower():
        # Pandas also converts its nullable integers to floats.
        cells = np.asarray(values.astype(object))
    if cells.dtype.kind not in "OT" or any(map(_is_nested, cells.flat)):
        return cells  # `to_columns` refuses lists
    flat = cells.ravel().tolist()
    present = [value for value in flat if not is_missing(value)]
    if not present:
        return np.full(cells.shape, np.nan)
    if len(present) == len(flat) and len(set(map(type, flat))) == 1:
        # Objects of one type: truth values and whole numbers keep their type.
        typed = np.array(flat)
        if typed.dtype.kind in "bi":
            return typed.reshape(cells.shape)
    numbers = (int, float, Decimal, np.integer, np.floating)
    if all(isinstance(v, numbers) and not isinstance(v, bool) for v in present):
        if not any(map(_needs_digits, present)):
            known = [np.nan if is_missing(value) else float(value) for value in flat]
            return np.array(known, np.float64).reshape(cells.shape)
        exact = np.array([None if is_missing(value) else value for value in flat], object)
        return exact.reshape(cells.shape)
    texts = ["" if value is None or is_missing(value) else str(value) for value in flat]
    return np.array(texts, np.str_).reshape(cells.shape)


def _needs_digits(value: Any) -> bool:
    """Return whether a number is whole and so long that it may be a code."""
    if isinstance(value, float | np.floating):
        return False
    return math.isfinite(value) and abs(value) > LONGEST_NUMBER and value == int(value)


def _build_table_from_pair(
    features: Any, labels: Any, schema: Schema | None, where: str
) -> MemoryTable:
    """Return X's columns and y as the label."""
    _check_order(features, labels, where)
    named = _get_label_name(labels) if schema is None else schema.label_column
    label = named or "y"
    if isinstance(features, Mapping) or hasattr(features, "columns"):
        columns = to_columns(features, schema, where)
    else:
        columns = split_array_columns(_get_cells(features), schema, where)
    if label in columns:
        raise DataError(f"the label {label!r} only in y", "a column of X, too", path=where)
    rows = max((len(values) for values in columns.values() if values.ndim), default=0)
    label_column = {label: _read_label_column(labels, rows, where)}
    names = _list_column_names(labels)
    fault = describe_label_fault(labels[names[0]] if names else labels)
    return MemoryTable(
        columns={**columns, **label_column}, name=where, label=label, label_faults={label: fault}
    )


def _check_order(features: Any, labels: Any, where: str) -> None:
    """Raise DataError if X and y are pandas objects with the same index in another order."""
    ours: Any = getattr(features, "index", None)
    theirs: Any = getattr(labels, "index", None)
    if not (hasattr(ours, "equals") and hasattr(theirs, "equals")):
        return
    if ours.equals(theirs) or len(ours) != len(theirs) or not ours.is_unique:
        return
    if ours.isin(theirs).all():
        remedy = "y = y.loc[X.index] orders it; y.to_numpy() is paired by position"
        got = f"the same index in another order ({remedy})"
        raise DataError("y in the order of X", got, path=where)


def _get_label_name(labels: Any) -> str:
    """Return the name of a series, or of a frame's only column; empty if there is none."""
    names = _list_column_names(labels)
    named = names[0] if len(names) == 1 else getattr(labels, "name", None)
    return named if isinstance(named, str) else ""


def _list_column_names(labels: Any) -> list[Any]:
    """Return the names of a frame's or a mapping's columns; empty for any other object."""
    return list(labels.keys() if isinstance(labels, Mapping) else getattr(labels, "columns", ()))


def _read_label_column(labels: Any, rows: int, where: str) -> Array:
    """Return `[N]` the labels of N rows, from y of shape [N] or [N, 1]."""
    expected = f"y of shape [{rows}] or [{rows}, 1], a label for each row of X"
    if len(names := _list_column_names(labels)) > 1:
        raise DataError(expected, f"{len(names)} columns (give one of them)", path=where)
    try:
        cells = _to_array(labels[names[0]] if names else labels)
    except ValueError:
        raise DataError(expected, "rows of unequal lengths", path=where) from None
    if cells.shape == (rows, 1):
        return cells[:, 0]
    if cells.ndim != 1:
        wide = cells.ndim == 2 and cells.shape[0] == rows
        remedy = " (give one of its columns)" if wide else ""
        raise DataError(expected, f"shape {list(cells.shape)}{remedy}", path=where)
    if len(cells) != rows:
        raise DataError(expected, f"{len(cells)} labels for {rows} rows", path=where)
    return cells


def split_array_columns(features: Array, schema: Schema | None, where: str) -> dict[str, Array]:
    """Return X's columns, named like the schema's features in its order; x1, x2, … without one."""
    if features.ndim < 2:
        got = f"shape {features.shape} (Reshape your data: one row is [1, p])"
        raise DataError("X of shape [N, p] or [N, …]", got, path=where)
    if schema is None:
        if features.ndim > 2:
            return {"x": features}
        return {f"x{at + 1}": _to_array(features[:, at]) for at in range(features.shape[1])}
    known = schema.features
    arrays = [name for name, column in known.items() if isinstance(column, ArrayColumn)]
    if len(known) == len(arrays) == 1:
        return {arrays[0]: features}  # `build_table` checks its shape
    every = [name for name in schema.columns if name not in schema.labels]
    if features.shape[1:] == (len(every),) != (len(known),) and not arrays:
        # X is as wide as the table that the schema describes, including its ignored columns.
        return {name: _to_array(features[:, at]) for at, name in enumerate(every) if name in known}
    if arrays or features.shape[1:] != (len(known),):
        columns = f"{len(known)} columns" + (f", of which {arrays} are arrays" if arrays else "")
        expected = f"X with the schema's columns ({columns}); named columns fit every schema"
        raise DataError(expected, f"shape {features.shape}", path=where)
    return {name: _to_array(features[:, at]) for at, name in enumerate(known)}


def _stack_pairs(dataset: Any, where: str) -> tuple[Array, Array]:
    """Return `[N, …]` and `[N]` of a map-style data set of pairs."""
    try:
        pairs = [dataset[at] for at in range(len(dataset))]
    except (LookupError, TypeError) as error:
        raise DataError(_EXPECTED, type(dataset).__name__, path=where) from error
    if not pairs or any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
        got = "none" if not pairs else "something else"
        raise DataError("a Dataset of pairs (x, y)", got, path=where)
    try:
        rows = np.stack([np.asarray(x) for x, _ in pairs])
        return rows, np.array([np.asarray(y).item() for _, y in pairs])
    except ValueError as error:
        raise DataError("pairs (x, y) of one shape, y a single value", None, path=where) from error
