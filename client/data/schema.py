"""`Schema`: the public facts about a table. Preprocessing may use nothing else.

A schema file (TOML) defines each column's kind and its range or categories, the meaning of the
label's values, and the scaling of rows to ‖x‖₂ ≤ 1. None of it may be read from the private data.
Ranges come from domain knowledge, standards or a public data set. docs/schema.md describes every
key and the scalings.

    >>> schema = Schema.from_toml('''
    ... [columns]
    ... age = { kind = "numeric", range = [0, 100] }
    ... sick = { kind = "label", positive = "yes", negative = "no" }
    ... ''')
    >>> schema.feature_names, schema.label_column
    (('age',), 'sick')
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError, model_validator

from parley.client.contract.assumptions import format_draft_assumption
from parley.client.data.column_types import (
    READINGS,
    ArrayColumn,
    CategoricalColumn,
    Column,
    IgnoreColumn,
    LabelColumn,
    NumericColumn,
    SchemaPart,
)
from parley.client.data.threaded_chunks import compute_row_ranges
from parley.module_loading.plugin_table import load_attribute
from parley.safe_io.deprecations import rename_keys
from parley.safe_io.file_reading import read_text
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.safe_io.toml_reading import parse_toml

Scaling = Literal["record", "schema", "unit"]
FeatureColumn = NumericColumn | ArrayColumn | CategoricalColumn

_SHRINK = 1 - 1e-12
"""Factor that keeps ‖x‖₂ ≤ 1 despite the division's rounding, for up to ~4000 features."""

_SHORTEST = 1e-150
"""Minimum norm of a row that `unit` divides by its norm."""

_UNSCALED: str = "none"
"""Scaling that no file can choose: no row that is learned from is longer than 1."""

_EXPAND = "parley.client.data.column_shorthand:expand_column"
"""Imported only for columns in short form."""

_OPTIONAL_KEYS = {"numeric": ("bins", "step"), "label": ("centre",)}
"""Keys that enter the digest only if they are given, so that older digests stay the same."""

COLUMN_KINDS: dict[str, type[BaseModel]] = {
    "numeric": NumericColumn,
    "array": ArrayColumn,
    "categorical": CategoricalColumn,
    "ignore": IgnoreColumn,
    "label": LabelColumn,
}
"""Each kind of column with its keys (docs/schema.md describes every one)."""


class SchemaError(ValueError):
    """Error for a schema that cannot be read, contradicts itself or does not fit the model."""


class FileFormat(SchemaPart):
    """The format of the file.

    Attributes:
        header: whether CSV's first line names the columns. Otherwise they have the schema's order.
        decimal: decimal mark of a CSV. With ",", a point within a number is an error.
        null_values: texts that mean an empty value, in addition to an empty cell. A text that a
            column lists as a category or label is still a value there.
        max_gib: maximum memory (GiB, 2³⁰ bytes) of the file's records: two copies of their features
            and label as 8-byte numbers. If the process may take less, the limit is lower.
    """

    format: Literal["csv", "parquet", "npz"] | None = None
    """File format of files whose suffix names none. Default: from the file's name."""

    header: bool = Field(default=True, strict=True)
    """Whether a CSV's first line names the columns. Without one, they are in the schema's order."""

    separator: str = Field(default=",", pattern=r"^[\t -!#-~]$")
    """Character between the fields of a CSV."""

    encoding: Literal["utf-8", "windows-1252", "latin-1", "utf-16"] = "utf-8"
    """Encoding of a CSV."""

    decimal: Literal[".", ","] = "."
    """Decimal mark of a CSV's numbers. With a comma, a point in a number is an error."""

    null_values: tuple[str, ...] = ()
    """Texts that mean an empty cell, in addition to no text. A text that a column lists as a
    category or label stays a value there.
    """

    max_gib: float = Field(default=8.0, gt=0, le=2**20, strict=True)
    """Most memory for the file's records, in GiB (2³⁰ bytes): two copies of the features and label
    as 8-byte numbers.
    """

    @model_validator(mode="after")
    def _check(self) -> FileFormat:
        if self.decimal == self.separator:
            raise ValueError(f"Expected decimal and separator to differ, got {self.decimal!r}.")
        return self


class Schema(SchemaPart):
    """Columns in the order of the file, which is the order of the features.

    At most one is of kind "label". A model needs one; statistics do not.

    Attributes:
        drafted: whether the schema was read from records and has not been reviewed. No budget
            covers what it discloses about them. Every ε then rests on an assumption, and a real
            party refuses the schema. It does not decide how a record is read, so it is not in the
            digest.
        drafted_from: name of the input it was read from. It is only a note once the schema has been
            reviewed.
    """

    scaling: Scaling = "record"
    """How a record gets a norm of at most 1. record: divide a record by its norm if that exceeds 1.
    schema: divide all records by the largest norm that the schema allows. unit: divide every record
    by its norm.
    """

    drafted: bool = Field(default=False, strict=True)
    """Whether the schema was read from records and not reviewed. Real parties refuse such a schema.
    """

    drafted_from: str = Field(default="", max_length=300)
    """File that the draft was read from; a note."""

    file: FileFormat = FileFormat()
    columns: dict[str, Annotated[Column, Field(discriminator="kind")]]

    @model_validator(mode="after")
    def _check(self) -> Schema:
        labels = [name for name, c in self.columns.items() if isinstance(c, LabelColumn)]
        if len(labels) > 1:
            raise ValueError(f'Expected at most one column of kind "label", got {labels}.')
        if not self.features:
            raise ValueError("Expected at least one column of kind numeric, categorical or array.")
        return self

    @classmethod
    def from_toml(cls, text: str, *, source: str = "schema") -> Schema:
        """Parse the schema in `text`.

        Raises:
            SchemaError: the text is no valid schema. It names every faulty key.
        """
        try:
            tree = parse_toml(text)
            rename_keys("schema", tree)
            return cls.model_validate(tree)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"{source}: Expected TOML, got an error: {error}.") from error
        except ValueError as error:
            raise _build_fault_error(error, source) from None

    @classmethod
    def of(cls, columns: Mapping[str, Any], *, label: str | None = None, **keys: Any) -> Schema:
        """Build a schema from columns in short form.

        >>> columns = {"age": (0, 120), "ward": ["a", "b"], "id": None, "sick": ["no", "yes"]}
        >>> schema = Schema.of(columns, label="sick")
        >>> schema.feature_names, schema.label.positive
        (('age', 'ward=a', 'ward=b'), ('yes',))

        Args:
            columns: name → (low, high) for numbers, a list of categories, None to ignore the
                column, or a mapping with the keys of a schema file.
            label: the column that a model predicts. Its two values mean (negative, positive), more
                values are classes, and (low, high) is a target's range.
            keys: the schema's other keys, such as `scaling="schema"`.

        Raises:
            SchemaError: a column has no such form, or the label is no column.
        """
        if label is not None and label not in columns:
            names = ", ".join(columns)
            expected = f"Expected the label to be one of the columns {names}"
            raise SchemaError(f"{expected}, got {label!r}.")
        expand_column = load_attribute(_EXPAND)
        try:
            tree = {n: expand_column(n, short, is_label=n == label) for n, short in columns.items()}
            return cls.model_validate({"columns": tree, **keys})
        except ValueError as error:
            raise _build_fault_error(error, "schema") from None

    def __repr__(self) -> str:
        label = f", label {next(iter(self.labels))!r}" if self.labels else ""
        return f"<Schema {len(self.features)} {format_noun(len(self.features), 'column')}{label}>"

    __str__ = __repr__

    @property
    def labels(self) -> dict[str, LabelColumn]:
        """The column of kind "label", by its name; empty for a schema of statistics only."""
        return {n: c for n, c in self.columns.items() if isinstance(c, LabelColumn)}

    @property
    def label_column(self) -> str:
        """The name of the label's column. Raises SchemaError if there is none."""
        for name in self.labels:
            return name
        raise SchemaError(
            "This schema has no label, which statistics do not need and a model does. Name the "
            'column to predict: label="…", or kind = "label" in the schema file.'
        )

    @property
    def label(self) -> LabelColumn:
        """The label's column. Raises SchemaError if there is none."""
        return self.labels[self.label_column]

    @property
    def used(self) -> dict[str, Column]:
        """The columns that are read: all except those of kind "ignore"."""
        return {n: c for n, c in self.columns.items() if not isinstance(c, IgnoreColumn)}

    @property
    def features(self) -> dict[str, FeatureColumn]:
        """The columns that become features, in order."""
        kinds = (NumericColumn, ArrayColumn, CategoricalColumn)
        return {name: c for name, c in self.columns.items() if isinstance(c, kinds)}

    @property
    def number_count(self) -> int:
        """Number of numeric features; 0 if a column is an array."""
        found = self.features.values()
        if any(isinstance(column, ArrayColumn) for column in found):
            return 0
        return sum(isinstance(column, NumericColumn) for column in found)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`[p]` names."""
        return tuple(n for name, c in self.features.items() for n in c.list_feature_names(name))

    @property
    def dimension(self) -> int:
        """p, features per record (without the intercept, which the model appends)."""
        return sum(column.width for column in self.features.values())

    @property
    def classes(self) -> int:
        """K of a softmax model; 0 if the label lists no classes."""
        return sum(len(label.classes or ()) for label in self.labels.values())

    @property
    def digest(self) -> str:
        """Hex SHA-256 of all that decides how a record is read: scaling, features, label.

        Each party chooses its file format and its ignored columns, so they are not included.
        """
        parts = {**self.features, **self.labels}
        content = [
            [name, {key: value for key, value in column.model_dump(mode="json").items()
                    if value is not None or key not in _OPTIONAL_KEYS.get(column.kind, ())}]
            for name, column in parts.items()
        ]  # fmt: skip
        text = json.dumps([self.scaling, content], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def assumption(self) -> str:
        """The assumption that every ε rests on while the schema is a draft; empty otherwise."""
        source = to_one_line(self.drafted_from) or "records"
        return format_draft_assumption(source) if self.drafted else ""

    @property
    def unscaled(self) -> Schema:
        """The same columns with cells in [−1, 1], for a feature map that scales its own rows."""
        return self.model_copy(update={"scaling": _UNSCALED})

    @property
    def max_entries(self) -> int:
        """Maximum number of features of a record that are not zero."""
        columns = self.features.values()
        return sum(1 if isinstance(each, CategoricalColumn) else each.width for each in columns)

    @property
    def row_scale(self) -> float:
        """1/√S, with which ‖x‖₂ ≤ 1 for every record (1/√columns if no column is an array)."""
        return 1 / math.sqrt(sum(column.squared_norm for column in self.features.values()))

    def scale_rows(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scale `rows` `[N, p]` in place to L2 norm at most 1 each, and return them."""
        if self.scaling == _UNSCALED:
            return rows
        if self.scaling == "schema":
            rows *= self.row_scale * _SHRINK
            return rows
        # Not einsum: for more than 8192 columns it sums a single row in another order.
        # Squares of shorter rows lose digits (subnormal numbers), and with them the bound of 1.
        min_norm = 1.0 if self.scaling == "record" else _SHORTEST
        for begin, end in compute_row_ranges(rows):
            part = rows[begin:end]
            norms = np.linalg.norm(part, axis=1)
            long = norms >= min_norm
            part[long] *= (_SHRINK / norms[long])[:, None]
        return rows

    def to_toml(self) -> str:
        """Return the schema as a file's text. `Schema.from_toml` is the inverse."""
        return str(load_attribute("parley.client.data.schema_writing:format_schema")(self))


def _build_fault_error(error: ValueError, source: str) -> SchemaError:
    """Return the error of a schema that has faults, each in a line."""
    if not isinstance(error, ValidationError):
        return SchemaError(f"{source}: {error}")
    format_fault = load_attribute("parley.client.data.schema_error_texts:format_fault")
    faults = error.errors(include_url=False)
    said = [format_fault(each, Schema, FileFormat, COLUMN_KINDS) for each in faults]
    return SchemaError("\n".join(f"{source}: {each}" for each in said))


def load_schema(path: str | Path) -> Schema:
    """Load the schema in the file at `path`.

    Raises:
        SchemaError: the file cannot be read, or is no valid schema.
    """
    try:
        text = read_text(Path(path))
    except OSError as error:
        cause = describe_cause(error)
        raise SchemaError(f"{path}: Expected a schema file (TOML, UTF-8), got: {cause}.") from error
    return Schema.from_toml(text, source=str(path))


def load_public_schema(path: str | Path) -> Schema:
    """Load the schema in the file at `path`, for a real party.

    Raises:
        SchemaError: the file cannot be read, or is a draft that has not been reviewed.
    """
    schema = load_schema(path)
    if schema.drafted:
        expected = f"{path}: Expected a schema of public knowledge"
        why = "its ranges and categories were read from records, and no privacy budget covers that"
        remedy = "Replace them by public knowledge, then delete the line drafted = true."
        raise SchemaError(f"{expected}, got a draft (drafted = true): {why}. {remedy}")
    return schema


def check_label(schema: Schema, model_kind: str) -> None:
    """Raise SchemaError if the schema's label has no reading for `model_kind`."""
    if model_kind not in READINGS:
        raise ValueError(f"Expected a model of {', '.join(READINGS)}, got {model_kind!r}.")
    key = READINGS[model_kind]
    if getattr(schema.label, key) is None:
        needs = {"positive": "positive and negative"}.get(key, key)
        given = [kind for kind, key in READINGS.items() if getattr(schema.label, key) is not None]
        remedy = f" It fits model.kind = {' or '.join(map(repr, given))}."
        if schema.label.range is not None:
            remedy += " Or make it a column of kind numeric, and choose another label."
        expected = f"the label {schema.label_column!r} to give {needs} for a {model_kind} model"
        raise SchemaError(f"Expected {expected}, got none.{remedy}")
