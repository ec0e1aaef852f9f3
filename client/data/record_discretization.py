"""Records as codes: every column as a number from 0 to s − 1, by the public schema, and back.

A category is its position in the schema's list (`other` is last). A number is the part of its
public range that contains it. Parts are equal in the column's transformed scale. With a `step`
their ends are whole steps, and parts that contain none are merged. A label is its class. When codes
are decoded, a number is uniform within its part.

    >>> schema = Schema.from_toml('''
    ... [columns]
    ... age = { kind = "numeric", range = [0, 100], bins = 4, step = 1 }
    ... sick = { kind = "label", positive = "yes", negative = "no" }
    ... ''')
    >>> coded = build_coded_columns(schema)
    >>> [column.size for column in coded], coded[0].edges
    ([4, 2], (25.0, 50.0, 75.0))
    >>> coded[1].texts
    ('no', 'yes')
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_types import (
    ArrayColumn,
    CategoricalColumn,
    NumericColumn,
    canonicalize_text,
)
from parley.client.data.schema import FeatureColumn, Schema, SchemaError

MAX_VALUES = 65_536
"""Maximum number of values of one column."""

REST = "(rest)"
"""Name of a label on the side that the schema calls "rest"."""

_BINS = 16


@dataclass(frozen=True, kw_only=True)
class CodedColumn:
    """One column as numbers 0 to `size` − 1.

    Attributes:
        texts: meaning of each code; empty for a number's parts.
        edges, step: for a number: the beginnings of its range's parts from the second on, and the
            step that its values are multiples of (None: any value).
    """

    name: str
    texts: tuple[str, ...] = ()
    range: tuple[float, float] = (0.0, 0.0)
    edges: tuple[float, ...] = ()
    step: float | None = None

    @property
    def size(self) -> int:
        """s, the number of codes."""
        return len(self.texts) or len(self.edges) + 1

    @property
    def names(self) -> tuple[str, ...]:
        """`[s]` the name of each code."""
        low, high = self.range
        parts = pairwise((low, *self.edges, high))
        return self.texts or tuple(f"{begin:g} to {end:g}" for begin, end in parts)

    def sample_values(
        self, codes: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.generic]:
        """Return `[n]` texts, or numbers that are uniform within their parts."""
        if self.texts:
            return np.array(self.texts, dtype=np.str_)[codes]
        low, high = self.range
        begins, ends = np.array([low, *self.edges]), np.array([*self.edges, high])
        if self.step is None:
            drawn = begins[codes] + rng.random(len(codes)) * (ends - begins)[codes]
            below = np.where(codes < len(self.edges), np.nextafter(ends[codes], low), high)
            return np.asarray(np.minimum(drawn, below))
        first = np.rint((begins - low) / self.step).astype(np.int64)
        last = np.floor((high - low) / self.step).astype(np.int64)
        beyond = np.append(first[1:], last + 1)
        steps = rng.integers(first[codes], beyond[codes])
        values = low + steps * self.step
        whole = float(low).is_integer() and float(self.step).is_integer()
        return values.astype(np.int64) if whole else values


def compute_edges(column: NumericColumn) -> tuple[float, ...]:
    """Return the beginnings of a number's parts from the second on.

    Raises:
        SchemaError: the range has fewer than two parts.
    """
    low, high = column.range
    begin, end = column.scale.apply_transform(np.array(column.range, np.float64))
    edges = column.scale.invert_transform(np.linspace(begin, end, (column.bins or _BINS) + 1)[1:-1])
    if column.step is not None:
        edges = low + np.rint((edges - low) / column.step) * column.step
    kept = np.unique(edges[(edges > low) & (edges <= high)])
    if not len(kept):
        expected = f"Expected a range [{low:g}, {high:g}] with values in at least two bins"
        raise SchemaError(f"{expected}, got one. Choose a smaller step, or none.")
    return tuple(kept.tolist())


def build_coded_columns(schema: Schema) -> tuple[CodedColumn, ...]:
    """Return the feature columns in order, then the label.

    Raises:
        SchemaError: a column is an array or has more than `MAX_VALUES` values.
    """
    columns = [_build_coded_column(name, column) for name, column in schema.features.items()]
    columns.append(CodedColumn(name=schema.label_column, texts=list_class_names(schema)))
    for column in columns:
        if column.size > MAX_VALUES:
            expected = f"Expected at most {MAX_VALUES} values of a column that is counted"
            raise SchemaError(f"{expected}, got {column.size} of {column.name!r}.")
    return tuple(columns)


def find_array_column(schema: Schema) -> tuple[str, ArrayColumn] | None:
    """Return the name and column of records that are one labelled array; None for a table."""
    (name, column), *others = schema.features.items()
    return (name, column) if isinstance(column, ArrayColumn) and not others else None


def list_class_names(schema: Schema) -> tuple[str, ...]:
    """Return `[K]` names of the label's classes, by number; of two sides, the negative one first.

    Raises:
        SchemaError: the label has no classes.
    """
    label = schema.label
    if label.classes is not None:
        return tuple(canonicalize_text(value) for value in label.classes)
    if label.positive is None or label.negative is None:
        expected = f"the label {schema.label_column!r} to give classes, or positive and negative"
        remedy = "Make it a column of kind numeric, and choose another label."
        raise SchemaError(f"Expected {expected}, got a range. {remedy}")
    sides = (label.negative, label.positive)
    return tuple(REST if side == "rest" else canonicalize_text(side[0]) for side in sides)


def encode_classes(labels: NDArray[np.generic], classes: int) -> NDArray[np.int64]:
    """Return `[n]` numbers 0 to `classes` − 1, whatever the labels are.

    >>> encode_classes(np.array([2.0, -3.0, np.nan, np.inf]), 3).tolist()
    [2, 0, 0, 2]
    """
    whole = np.nan_to_num(np.asarray(labels, np.float64))
    return np.asarray(np.clip(whole, 0, classes - 1), np.int64)


def _build_coded_column(name: str, column: FeatureColumn) -> CodedColumn:
    if isinstance(column, ArrayColumn):
        raise SchemaError(f"Expected columns of numbers and categories, got the array {name!r}.")
    if isinstance(column, CategoricalColumn):
        return CodedColumn(name=name, texts=column.cells)
    try:
        edges = compute_edges(column)
    except SchemaError as error:
        raise SchemaError(f"columns.{name}: {error}") from error
    return CodedColumn(name=name, range=column.range, edges=edges, step=column.step)
