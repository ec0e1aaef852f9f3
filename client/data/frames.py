"""What a table is read from: a file, a database's query, or data that are in memory.

Data in memory (docs/data-in-memory.md) are taken as the columns of one file would be; pairs (X, y)
are X's columns and y.

From here on such columns go the way of a file (`parley.client.data.readers.read_tables`): checked
against the schema, counted and distinguished by what they hold. Neither torch nor pandas is
imported.

    >>> import numpy as np
    >>> frame_of((np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1]))).columns["x2"].tolist()
    [2.0, 4.0]
    >>> sorted(frame_of({"age": [30, None], "sick": ["no", "yes"]}).columns)
    ['age', 'sick']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.columns import ArrayColumn
from parley.client.data.schema import Schema
from parley.client.data.table import DataError
from parley.privacy.ledger.address import check_source

_WHERE = "in memory"
_NOT_THERE = frozenset({"None", "nan", "NaN", "<NA>", "NaT"})
"""What objects that stand for a missing value are called, whichever library they are of."""

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """Columns in memory, `[N]` or `[N, …]`; a missing value is NaN, or "" among texts."""

    columns: Mapping[str, Array]
    name: str = _WHERE


@dataclass(frozen=True, kw_only=True)
class SqlQuery:
    """The rows that a query of a database gives (`parley.client.data.sql` reads them).

    Attributes:
        database: its URL, without a password; or `env:NAME`, a variable that holds one.
        folder: where a relative SQLite file lies.

    Raises:
        ValueError: no such database, a password in its URL, or no query.
    """

    database: str
    query: str
    folder: Path = Path()

    def __post_init__(self) -> None:
        check_source(self.database, self.query)
        if not self.query:
            raise ValueError("Expected a database's URL, got another text.")

    @property
    def name(self) -> str:
        """What errors call it: the URL without its options."""
        return self.database.partition("?")[0]


Source = str | Path | Frame | SqlQuery
"""A file, columns in memory, or a query."""


def name_of(source: Source) -> str | Path:
    """What errors call it."""
    return source if isinstance(source, str | Path) else source.name


def frame_of(data: Any, *, schema: Schema | None = None, name: str = _WHERE) -> Frame:
    """What is given, as columns (the module's table), called `name` in errors.

    The schema names the columns of arrays, in its order; without one they are x1, x2, … (x where a
    record has an array) and y.
    """
    if isinstance(data, Frame):
        return data
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError("a pair (X, y)", f"a tuple of {len(data)}", path=name)
        return Frame(columns=_of_pair(*data, schema, name), name=name)
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return Frame(columns=columns_of(data), name=name)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "dtype"):
        return Frame(columns=_of_pair(*_stacked(data, name), schema, name), name=name)
    expected = "a frame, columns by name, a pair (X, y), or a Dataset of pairs"
    raise DataError(expected, type(data).__name__, path=name)


def columns_of(frame: Any) -> dict[str, Array]:
    """The columns of a polars or pandas frame, or of a mapping, as arrays.

    Texts stay texts, "" where there is none; numbers beside missing ones are floats with NaN.
    """
    names = list(frame.keys()) if isinstance(frame, Mapping) else list(frame.columns)
    return {str(name): _cells(frame[name]) for name in names}


def _cells(values: Any) -> Array:
    cells = np.asarray(values)
    if cells.dtype.kind in "biufU" or cells.dtype.kind not in "OT":
        return cells
    flat = cells.ravel().tolist()
    there = [value for value in flat if str(value) not in _NOT_THERE]
    numbers = (int, float, np.integer, np.floating)
    if there and all(isinstance(v, numbers) and not isinstance(v, bool) for v in there):
        known = [np.nan if str(value) in _NOT_THERE else value for value in flat]
        return np.array(known, np.float64).reshape(cells.shape)
    texts = ["" if value is None or _absent(value) else str(value) for value in flat]
    return np.array(texts, np.str_).reshape(cells.shape)


def _absent(value: Any) -> bool:
    """A missing value's object, and not a text that is spelt like one."""
    return not isinstance(value, str) and str(value) in _NOT_THERE


def _of_pair(features: Any, labels: Any, schema: Schema | None, where: str) -> dict[str, Array]:
    named = getattr(labels, "name", None) if schema is None else schema.label_column
    label = named if isinstance(named, str) and named else "y"
    if isinstance(features, Mapping) or hasattr(features, "columns"):
        columns = columns_of(features)
    else:
        columns = columns_of_array(np.asarray(features), schema, where)
    if label in columns:
        raise DataError(f"the label {label!r} in y alone", "a column of X, too", path=where)
    return {**columns, label: _cells(labels)}


def columns_of_array(features: Array, schema: Schema | None, where: str) -> dict[str, Array]:
    """X's columns by the names of the schema's features, in its order; x1, x2, … without one."""
    if features.ndim < 2:
        got = f"shape {features.shape} (Reshape your data: one row is [1, p])"
        raise DataError("X of shape [N, p] or [N, …]", got, path=where)
    if schema is None:
        if features.ndim > 2:
            return {"x": features}
        return {f"x{at + 1}": _cells(features[:, at]) for at in range(features.shape[1])}
    known = schema.features
    arrays = [name for name, column in known.items() if isinstance(column, ArrayColumn)]
    if len(known) == len(arrays) == 1:
        return {arrays[0]: features}  # its shape is checked where the table is made
    if arrays or features.shape[1:] != (len(known),):
        columns = f"{len(known)} columns" + (f", of which {arrays} are arrays" if arrays else "")
        expected = f"X as the schema has it ({columns}); columns by name fit every schema"
        raise DataError(expected, f"shape {features.shape}", path=where)
    return {name: _cells(features[:, at]) for at, name in enumerate(known)}


def _stacked(dataset: Any, where: str) -> tuple[Array, Array]:
    """`[N, …]` and `[N]` of a map-style data set of pairs."""
    pairs = [dataset[at] for at in range(len(dataset))]
    if not pairs or any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
        got = "none" if not pairs else "something else"
        raise DataError("a Dataset of pairs (x, y)", got, path=where)
    try:
        rows = np.stack([np.asarray(x) for x, _ in pairs])
        return rows, np.array([np.asarray(y).item() for _, y in pairs])
    except ValueError as error:
        raise DataError("pairs (x, y) of one shape, y a single value", None, path=where) from error
