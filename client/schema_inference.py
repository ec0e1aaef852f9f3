"""A first schema, read off a file: a draft for a person to review, not a private computation.

Ranges and categories say something about the records they were read from, and no privacy budget
covers that. The text says so at its head and beside every such column; whoever publishes the
schema replaces them by what is known anyway.

Ranges are rounded outwards to one significant digit; text of more than `max_categories` values,
dates, constants and columns that look like identifiers are set to "ignore".
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from client.columns import canonical_text
from client.readers import CsvLines, file_format, read_arrays, read_bytes
from client.schema import toml_key, toml_value
from client.table import DataError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["infer_schema"]

_HEAD = """\
# A first schema, written by `parley schema infer` from {name} ({rows} records).
#
# REVIEW IT BEFORE USE. The ranges and categories below were READ FROM THE DATA. They say
# something about the records (an extreme age, a rare diagnosis), and NO PRIVACY BUDGET COVERS
# THAT. Replace each by public knowledge: a questionnaire's answers, a sensor's range, a
# classification's codes. Only then share this file with the other parties.

# Rows are scaled to norm at most 1: "record" divides the longer ones by their own norm, "unit"
# divides every row by its own norm, "schema" divides all rows by one public factor.
scaling = "record"
"""

_POSITIVE = {"1", "true", "yes", "y", "t", "positive", "pos", "case", "sick", "malignant"}
_IDENTIFIERS = ("id", "uuid", "key", "index", "row", "ssn", "name")


def infer_schema(
    path: str | Path,
    *,
    label: str | None = None,
    header: bool = True,
    separator: str = ",",
    max_categories: int = 50,
) -> str:
    """The text of a schema (TOML) that reads the file at `path`, with a comment on each column.

    Args:
        path: CSV (.csv, .csv.gz), Parquet or .npz.
        label: the label's column; the last one where not given.
        header: whether a CSV's first line names the columns.
        separator: a CSV's separator.
        max_categories: text with more distinct values than that is ignored.

    Raises:
        DataError: the file can't be read, has no records, no such column `label`, or nothing to
            learn from.
    """
    kind = file_format(path)
    if kind == "npz":
        columns, arrays = _npz_columns(path, label)
    else:
        columns, arrays = _frame_columns(path, kind, header=header, separator=separator), {}
    names = [*arrays, *columns]
    label = names[-1] if label is None and names else label
    if label not in columns:
        raise DataError(f"a label column among {names}", repr(label), path=path)
    rows = len(columns[label])
    if rows == 0:
        raise DataError("at least one record", "none", path=path)
    lines: dict[str, tuple[dict[str, Any], str]] = {}
    for name in names:
        if name in arrays:
            lines[name] = _array_line(arrays[name], rows)
        elif name == label:
            lines[name] = _label_line(columns[name], path, name)
        elif len(columns[name]) != rows:
            lines[name] = {"kind": "ignore"}, f"not {rows} long, as the label is"
        else:
            lines[name] = _column_line(name, columns[name], max_categories)
    if all(entry["kind"] in {"ignore", "label"} for entry, _ in lines.values()):
        raise DataError("a column to learn from", "only ones to ignore", path=path)
    file = {"format": kind} | ({"header": False} if not header else {})
    file |= {"separator": separator} if separator != "," else {}
    text = [_HEAD.format(name=Path(path).name, rows=rows), "[file]"]
    text += [f"{key} = {toml_value(value)}" for key, value in file.items()]
    text += ["", "[columns]"]
    for name, (entry, note) in lines.items():
        text += [f"# {note}", f"{toml_key(name)} = {toml_value(entry)}"]
    return "\n".join(text) + "\n"


def _frame_columns(
    path: str | Path, kind: str, *, header: bool, separator: str
) -> dict[str, pl.Series]:
    import polars as pl

    content = read_bytes(path)
    if kind == "csv" and not content.strip():
        raise DataError("at least one record", "an empty file", path=path)
    if kind == "csv" and header:
        # polars would rename a column that is there twice; the reader then refuses the file.
        names = CsvLines(content, separator, header=True).header_names(path)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            got = f"{', '.join(map(repr, twice))} more than once"
            raise DataError("every column named once", got, path=path)
    try:
        if kind == "parquet":
            frame = pl.read_parquet(io.BytesIO(content))
        else:
            frame = pl.read_csv(
                content.rstrip(b"\r\n"),
                has_header=header,
                separator=separator,
                infer_schema_length=None,
            )
    except (pl.exceptions.PolarsError, OSError) as error:
        got = str(error).splitlines()[0]
        raise DataError(f"a {kind} file", got, path=path) from error
    if kind == "csv" and not header:
        frame.columns = [f"column_{at}" for at in range(1, frame.width + 1)]
    return {name: _trimmed(frame[name]) for name in frame.columns}


def _trimmed(series: pl.Series) -> pl.Series:
    """Text without surrounding spaces, as the reader takes it; "" is an empty value."""
    import polars as pl

    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    if series.dtype != pl.String:
        return series
    texts = series.str.strip_chars()
    return texts.set(texts == "", None)


def _npz_columns(
    path: str | Path, label: str | None
) -> tuple[dict[str, pl.Series], dict[str, NDArray[Any]]]:
    import polars as pl

    found = read_arrays(path, lambda names: names)
    flat = {n: pl.Series(n, a) for n, a in found.items() if a.ndim == 1 and a.dtype.kind in "biufU"}
    if label is None and flat:
        # Without a word on it, the label is the longest flat array that goes with another array.
        lengths = [len(a) for a in found.values() if a.ndim > 1]
        fitting = [name for name in flat if len(flat[name]) in lengths]
        label = max(fitting, key=lambda name: len(flat[name]), default=None)
    if label is not None and label in flat:
        flat[label] = flat.pop(label)
    return flat, {n: a for n, a in found.items() if n not in flat}


def _array_line(array: NDArray[Any], rows: int) -> tuple[dict[str, Any], str]:
    if array.ndim < 2 or array.dtype.kind not in "biuf" or len(array) != rows:
        return {"kind": "ignore"}, f"dtype {array.dtype}, shape {array.shape}: not one row a record"
    if not np.isfinite(array).all():
        return {"kind": "ignore"}, "NaN or infinite values: clean them before use"
    if array.dtype == np.uint8:
        low, high, note = 0.0, 255.0, "uint8: the type's own range"
    else:
        low, high = _outwards(float(array.min()), float(array.max()))
        note = "range read from the data, rounded outwards: replace it by public knowledge"
    entry = {"kind": "array", "shape": list(array.shape[1:]), "range": [low, high], "centre": low}
    return entry, note


def _column_line(name: str, series: pl.Series, max_categories: int) -> tuple[dict[str, Any], str]:
    import polars as pl

    distinct = series.drop_nulls().n_unique()
    empty = series.null_count()
    if distinct < 2:
        return {"kind": "ignore"}, "one value only: nothing to learn from"
    if series.dtype in (pl.String, pl.Boolean):
        if distinct > max_categories:
            note = f"{distinct} distinct texts (names, identifiers?): too many for categories"
            return {"kind": "ignore"}, note
        entry: dict[str, Any] = {"kind": "categorical", "categories": _sorted(series)}
        note = "categories read from the data: replace them by the public list"
        if empty:
            entry["other"] = True
            note += f"; {empty} empty values go to the bucket of other categories"
        return entry, note
    if not series.dtype.is_numeric():
        return {"kind": "ignore"}, f"type {series.dtype}: neither number nor text"
    if _identifier(name, series, distinct):
        return {"kind": "ignore"}, "a different whole number in every record: an identifier?"
    finite = series.cast(pl.Float64).drop_nulls().drop_nans()
    if finite.is_infinite().any():
        return {"kind": "ignore"}, "infinite values: clean them before use"
    values = finite.to_numpy()
    low, high = _outwards(float(values.min()), float(values.max()))
    entry = {"kind": "numeric", "range": [low, high]}
    note = "range read from the data, rounded outwards: replace it by public knowledge"
    if low >= 0 and high >= 1000 and high > 20 * float(np.quantile(values, 0.9)):
        entry |= {"centre": low, "transform": "log1p"}
        note += "; long tail, so log(1 + x) is taken"
    if absent := len(series) - len(finite):
        entry["missing"] = entry.get("centre", (low + high) / 2)
        note += f"; {absent} values are missing and become what `missing` says"
    return entry, note


def _identifier(name: str, series: pl.Series, distinct: int) -> bool:
    if not series.dtype.is_integer() or distinct < len(series) or distinct < 10:
        return False
    words = name.lower().replace("-", "_").split("_")
    steps = series.diff().drop_nulls()
    return bool((steps == 1).all()) or any(word in _IDENTIFIERS for word in words)


def _label_line(series: pl.Series, path: str | Path, name: str) -> tuple[dict[str, Any], str]:
    import polars as pl

    if empty := series.null_count():
        raise DataError("a label in every record", f"{empty} empty", path=path, column=name)
    distinct = series.n_unique()
    if distinct < 2:
        raise DataError("two labels or more", f"{distinct}", path=path, column=name)
    if distinct == 2:
        first, second = _sorted(series)
        swap = canonical_text(first).lower() in _POSITIVE
        positive, negative = (first, second) if swap else (second, first)
        entry = {"kind": "label", "positive": [positive], "negative": [negative]}
        return entry, "two values, for logistic and huber-svm: check which is the positive one"
    whole = series.dtype.is_integer() or series.dtype in (pl.String, pl.Boolean)
    if whole and distinct <= 100 and not (series.dtype.is_integer() and distinct > 20):
        note = f"{distinct} values, for softmax; for logistic write positive = [...] and"
        return {"kind": "label", "classes": _sorted(series)}, note + ' negative = "rest"'
    if not series.dtype.is_numeric():
        raise DataError("at most 100 labels", f"{distinct} texts", path=path, column=name)
    values = series.cast(pl.Float64).to_numpy()
    if not np.isfinite(values).all():
        raise DataError("finite labels", "NaN or infinity", path=path, column=name)
    entry = {"kind": "label", "range": list(_outwards(float(values.min()), float(values.max())))}
    return entry, "numbers, for ridge: range read from the data, replace it by public knowledge"


def _sorted(series: pl.Series) -> list[Any]:
    values: Iterable[Any] = series.drop_nulls().unique().to_list()
    return sorted(values)


def _outwards(low: float, high: float) -> tuple[float, float]:
    """The range widened to one significant digit of its larger end.

    >>> _outwards(17, 88), _outwards(0.013, 0.96), _outwards(-3.2, 250)
    ((10.0, 90.0), (0.0, 1.0), (-100.0, 300.0))
    """
    exponent = math.floor(math.log10(max(abs(low), abs(high), 1e-300)))
    step = 10.0**exponent

    def rounded(value: float, towards: Callable[[float], int]) -> float:
        # Formatting keeps 3 × 10⁻¹ from becoming 0.30000000000000004.
        return float(f"{towards(value / step)}e{exponent}")

    return rounded(low, math.floor), rounded(high, math.ceil)
