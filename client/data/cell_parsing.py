"""Cell parsing: convert a table's column as the schema defines it, or report its first bad cell.

Each function checks a whole column at once and raises a `DataError` that names the first bad cell.
No function looks at one value to decide what another becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.column_types import (
    MISSING_TEXTS,
    TRUTH_VALUES,
    WHOLE_NUMBER,
    CategoricalColumn,
    canonicalize_text,
)
from parley.client.data.data_error import DataError
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FeatureColumn, Schema
from parley.module_loading.plugin_table import load_attribute


def read_feature_cells(
    table: RawTable, name: str, column: FeatureColumn
) -> tuple[NDArray[Any], int]:
    """Return a column's numbers or codes, and how many were outside its range."""
    if isinstance(column, CategoricalColumn):
        return _encode_categories(table, name, column), 0
    outside, missing = column.outside, column.missing
    return read_ranged_numbers(table, name, column.range, outside=outside, missing=missing)


def read_ranged_numbers(
    table: RawTable,
    name: str,
    interval: tuple[float, float],
    *,
    outside: str,
    missing: float | None = None,
) -> tuple[NDArray[Any], int]:
    """Return `[N, …]` finite numbers, and how many are outside a range that permits it."""
    values, (low, high) = _read_numbers(table, name, missing), interval
    beyond = (values < low) | (values > high)
    if outside == "refuse" and beyond.any():
        position = np.argwhere(beyond)[0]
        expected = f"a number in [{low:g}, {high:g}]"
        got = f"{values[tuple(position)]:g}{_format_position(position)}"
        raise table.build_fault(expected, got, row=int(position[0]), column=name)
    return values, int(beyond.sum())


def _read_numbers(table: RawTable, name: str, missing: float | None) -> NDArray[Any]:
    """Return `[N, …]` finite numbers."""
    if name in table.arrays:
        values = table.arrays[name]
        if values.dtype.kind not in "biuf":
            got = f"dtype {values.dtype}"
            raise DataError("an array of numbers", got, path=table.path, column=name)
        if values.dtype.kind == "f":
            # Copy only if the array is written to: arrays can be most of the memory.
            values = values.astype(np.float64, copy=missing is not None)
            if missing is not None:
                values[np.isnan(values)] = missing
    else:
        series = table.get_column(name)
        if series.dtype == pl.String and not table.typed:
            series = _parse_numbers(table, name)
        if not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
            got = f"type {series.dtype}"
            raise DataError("a column of numbers", got, path=table.path, column=name)
        series = series.cast(pl.Float64)
        if missing is not None:
            series = series.fill_null(missing).fill_nan(missing)
        if series.null_count():
            row = int(series.is_null().arg_max() or 0)
            raise table.build_fault("a number", _EMPTY, row=row, column=name)
        values = series.to_numpy()
    finite = np.isfinite(values)
    if not finite.all():
        position = np.argwhere(~finite)[0]
        got = f"{values[tuple(position)]}{_format_position(position)}"
        raise table.build_fault("a finite number", got, row=int(position[0]), column=name)
    return values


def _parse_numbers(table: RawTable, name: str) -> pl.Series:
    """Return `[N]` the numbers of a text column, null for an empty cell."""
    from parley.client.data.text_numbers import normalize_decimal_points  # noqa: PLC0415 - spares its code for typed columns

    texts = _remove_missing(table.get_column(name).str.strip_chars(), {"", *table.null_values}, ())
    series = normalize_decimal_points(texts, table.decimal).cast(pl.Float64, strict=False)
    if (bad := series.is_null() & texts.is_not_null()).any():
        row = int(bad.arg_max() or 0)
        remedy = "" if any(map(str.isdigit, texts[row])) else _NULL
        if signs := load_attribute(f"{_SIGNS}:find_signs")(texts[row : row + 1]):
            remedy = f" ({load_attribute(f'{_SIGNS}:describe_signs')(signs)})"
        raise table.build_fault("a number", _quote(texts[row]) + remedy, row=row, column=name)
    return series


_SIGNS = "parley.client.data.unreadable_numbers"
"""Imported only for a number that cannot be read."""

_NULL = " (file.null-values of the schema lists the texts that mean an empty value)"
_EMPTY = (
    "an empty value (the column's `missing` in the schema replaces it; "
    "file.null-values lists the texts that mean one)"
)


def _format_position(position: NDArray[np.int64]) -> str:
    return f" at [{','.join(map(str, position[1:]))}]" if len(position) > 1 else ""


def _quote(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "…")


def _read_texts(table: RawTable, name: str, *, listed: Sequence[str] = ()) -> pl.Series:
    """Return `[N]` canonical texts; null for null, NaN, "" or one of the null values.

    A text in `listed` is a value, even if it is also a null value.
    """
    series = table.get_column(name)
    dtype = series.dtype
    if dtype == pl.String:
        canonicalize = partial(_canonicalize_present, table, listed=listed)
        return map_distinct(series, canonicalize, pl.String)
    if dtype.is_float():
        # −0 becomes 0: a cell's text must not depend on other cells.
        series = series.fill_nan(None) + 0.0
    elif dtype == pl.Boolean:
        series = series.replace_strict({True: "true", False: "false"}, return_dtype=pl.String)
    known = dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null)
    if not (known or dtype.is_numeric()):
        got = f"type {dtype}"
        raise DataError("a column of text or numbers", got, path=table.path, column=name)
    texts = series.cast(pl.String)
    if not dtype.is_numeric():
        return _canonicalize_present(table, texts, listed=listed)
    return canonicalize_texts(texts)


def _canonicalize_present(table: RawTable, texts: pl.Series, *, listed: Sequence[str]) -> pl.Series:
    """Return the canonical texts, null for a missing one."""
    present = _remove_missing(texts.str.strip_chars(), {"", *table.null_values}, listed)
    return canonicalize_texts(present)


def map_distinct(cells: pl.Series, work: Callable[[pl.Series], pl.Series], dtype: Any) -> pl.Series:
    """Return `[N]` what `work` returns for each cell, called only with the distinct cells.

    Args:
        work: function of each cell separately.
    """
    distinct = cells.unique()
    if 2 * len(distinct) > len(cells):
        return work(cells).cast(dtype)
    return cells.replace_strict(distinct, work(distinct), return_dtype=dtype)


_Texts = TypeVar("_Texts", pl.Series, pl.Expr)


def canonicalize_texts(texts: _Texts) -> _Texts:
    """Return the result of `canonicalize_text` for each text, null for a missing one."""
    return texts.str.strip_chars().str.replace(WHOLE_NUMBER, "$1").replace(TRUTH_VALUES)


def _remove_missing(texts: pl.Series, missing: Iterable[str], listed: Sequence[str]) -> pl.Series:
    """Return `texts` with null for those in `missing`, unless the schema lists them."""
    empty = texts.is_in(sorted(text for text in missing if canonicalize_text(text) not in listed))
    return texts.set(empty, None) if empty.any() else texts


def read_label_texts(table: RawTable, schema: Schema) -> pl.Series:
    """Return `[N]` canonical texts of the label, null if it is missing."""
    listed = schema.label.texts
    texts = _read_texts(table, schema.label_column, listed=listed)
    return _remove_missing(texts, MISSING_TEXTS, listed)


def find_missing_labels(table: RawTable, schema: Schema) -> NDArray[np.int64]:
    """Return `[≥ 0]` rows (from 0) of the records without a label."""
    return np.flatnonzero(read_label_texts(table, schema).is_null().to_numpy())


def select_labelled(table: RawTable, schema: Schema) -> RawTable:
    """Return the records that have a label.

    Raises:
        DataError: records have no label, and the schema does not drop them.
    """
    rows = find_missing_labels(table, schema)
    if not len(rows):
        return table
    if schema.label.missing == "drop":
        return table.take(np.setdiff1d(np.arange(table.rows), rows))
    remedy = 'missing = "drop" in the label\'s column leaves such records out'
    name = schema.label_column
    raise table.build_missing_error("a label in every record", rows, column=name, remedy=remedy)


def read_group_texts(table: RawTable, name: str) -> NDArray[np.str_]:
    """Return `[N]` texts of the column that assigns records to parties."""
    texts = _read_texts(table, name)
    if texts.null_count():
        row = int(texts.is_null().arg_max() or 0)
        raise table.build_fault("a party's name", "an empty value", row=row, column=name)
    return texts.to_numpy().astype(np.str_)


def read_plain_texts(table: RawTable, name: str) -> pl.Series:
    """Return `[N]` canonical texts of a column, "" for an empty value."""
    return _read_texts(table, name).fill_null("")


def look_up(texts: pl.Series, known: Sequence[str]) -> NDArray[np.int64]:
    """Return `[N]` positions in `known`, −1 for an unknown text or null."""
    numbers = list(range(len(known)))
    codes = texts.replace_strict(list(known), numbers, default=-1, return_dtype=pl.Int64)
    return codes.fill_null(-1).to_numpy(writable=True)


def _encode_known(
    table: RawTable, name: str, texts: pl.Series, known: Sequence[str], kind: str
) -> NDArray[np.int64]:
    """Return `[N]` positions in `known`; raise DataError at the first unknown text."""
    codes = look_up(texts, known)
    if (codes < 0).any():
        expected = f"one of the {kind} {_list_some(known)}"
        raise _build_unexpected_error(table, name, texts, int((codes < 0).argmax()), expected)
    return codes


def _encode_categories(table: RawTable, name: str, column: CategoricalColumn) -> NDArray[np.int64]:
    """Return `[N]` positions of the categories; the bucket for others is last."""
    texts = read_category_texts(table, name, column)
    if not column.other:
        return _encode_known(table, name, texts, column.texts, "categories")
    codes = look_up(texts, column.texts)
    codes[codes < 0] = len(column.texts)
    return codes


def read_category_texts(table: RawTable, name: str, column: CategoricalColumn) -> pl.Series:
    """Return `[N]` canonical texts, null for an empty value without a replacement."""
    texts = _read_texts(table, name, listed=column.texts)
    return texts if column.missing is None else texts.fill_null(canonicalize_text(column.missing))


def _list_some(texts: Sequence[str]) -> str:
    shown = ", ".join(map(repr, texts[:12]))
    return shown if len(texts) <= 12 else f"{shown} and {len(texts) - 12} more"


def _build_unexpected_error(
    table: RawTable, name: str, texts: pl.Series, row: int, expected: str
) -> DataError:
    got = _EMPTY if texts[row] is None else _quote(texts[row])
    return table.build_fault(expected, got, row=row, column=name)


def encode_binary_labels(table: RawTable, schema: Schema) -> NDArray[np.float64]:
    """Return `[N]` labels −1/+1."""
    name, label = schema.label_column, schema.label
    texts = read_label_texts(table, schema)
    signs = np.zeros(len(texts))
    named: list[str] = []
    for side, sign in ((label.positive, 1.0), (label.negative, -1.0)):
        if isinstance(side, tuple):
            listed = [canonicalize_text(value) for value in side]
            signs[look_up(texts, listed) >= 0] = sign
            named += listed
    rest = 1.0 if label.positive == "rest" else -1.0 if label.negative == "rest" else None
    if rest is not None:
        signs[(signs == 0) & texts.is_not_null().to_numpy()] = rest
    if not signs.all():
        expected = f"one of the labels {_list_some(named)}" if rest is None else "a label"
        raise _build_unexpected_error(table, name, texts, int((signs == 0).argmax()), expected)
    return signs


def encode_class_labels(table: RawTable, schema: Schema) -> NDArray[np.int64]:
    """Return `[N]` classes 0..K−1."""
    known = [canonicalize_text(value) for value in schema.label.classes or ()]
    texts = read_label_texts(table, schema)
    return _encode_known(table, schema.label_column, texts, known, "classes")


def encode_targets(table: RawTable, schema: Schema) -> NDArray[np.float64]:
    """Return `[N]` targets, with the label's range mapped into [−1, 1]."""
    interval, outside = schema.label.range or (-1.0, 1.0), schema.label.outside
    targets, _ = read_ranged_numbers(table, schema.label_column, interval, outside=outside)
    return schema.label.scale.encode(targets)
