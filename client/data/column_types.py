"""The column kinds of a schema. Each has a public map from a raw value to features.

Every map is a function of only the schema and one value. Nothing is estimated from the data, so
preprocessing spends no budget. A number in its public range is mapped into [−1, 1]
(`parley.client.data.range_scaling`), and a category becomes a one-hot row of norm 1.

    >>> import numpy as np
    >>> age = NumericColumn(kind="numeric", range=(0, 100), centre=40)
    >>> age.encode(np.array([40.0, 100.0, 250.0]))
    array([0., 1., 1.])
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from parley.client.data.range_scaling import RangeScale, Transform

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
READINGS = {"logistic": "positive", "softmax": "classes", "ridge": "range"}
"""Kind of linear model → the key of the label column that it reads."""

Value = str | bool | int | float
"""One TOML value."""


WHOLE_NUMBER = r"^(-?\d+)\.0+$"
"""Pattern of a whole number written with decimals, as tables that pass through floats have it: 1.0
is 1.
"""

LONG_CODE = r"^[+-]?\d{16,}$"
"""Pattern of a code: a whole number of 16 digits or more. A double cannot hold all its digits."""

LONGEST_NUMBER = 10**15 - 1
"""Largest whole number that is not a code."""

OTHER = "(other)"
"""Name of the bucket for values that a schema does not list."""

TRUTH_VALUES = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
"""Spellings of truth values in tables → TOML's true and false."""


MISSING_TEXTS = frozenset(
    {"", "?", "#N/A", "#NA", "<NA>", "N/A", "n/a", "NA", "NaN", "nan", "-nan", "-NaN", "NaT"}
    | {"NULL", "null", "None"}
)
"""Texts that mean a missing value in tables: those of pandas' `read_csv`, and UCI's "?"."""


class SchemaPart(BaseModel):
    """Base of all parts of a schema: frozen, kebab-case keys, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


def canonicalize_text(value: Value) -> str:
    """Return the text by which values are compared, whatever type a file gave them.

    >>> (canonicalize_text(1), canonicalize_text("1.0"), canonicalize_text(True),
    ... canonicalize_text(" True "))
    ('1', '1', 'true', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
    text = re.sub(WHOLE_NUMBER, r"\1", str(value).strip())
    return TRUTH_VALUES.get(text, text)


def _require_distinct(name: str, values: Sequence[Value]) -> None:
    for text, count in Counter(map(canonicalize_text, values)).items():
        if count > 1:
            raise ValueError(f"Expected distinct {name}, got {text!r} twice.")


_MAX_END = 1e300
"""Maximum magnitude of a range's ends, so that their sums and differences stay finite."""
_MIN_WIDTH = 1e-200
"""Minimum width of a range, so that quotients by it stay finite for every record."""


def _require_range(interval: tuple[float, float]) -> None:
    low, high = interval
    if not low < high:
        raise ValueError(f"Expected range [low, high] with low < high, got [{low:g}, {high:g}].")
    if max(-low, high) > _MAX_END:
        expected = f"Expected a range within [-{_MAX_END:g}, {_MAX_END:g}]"
        raise ValueError(f"{expected}, got [{low:g}, {high:g}].")
    if high - low < _MIN_WIDTH:
        raise ValueError(f"Expected a range at least {_MIN_WIDTH:g} wide, got [{low:g}, {high:g}].")


def _require_within(key: str, value: float | None, interval: tuple[float, float]) -> None:
    low, high = interval
    if value is not None and not low <= value <= high:
        raise ValueError(f"Expected {key} within [{low:g}, {high:g}], got {value:g}.")


_MAX_STEPS = 2**53


class _Feature(SchemaPart):
    """A column that becomes features: one, unless the kind overrides `width`."""

    @property
    def width(self) -> int:
        """Number of features."""
        return 1

    @property
    def squared_norm(self) -> float:
        """Upper bound on the squared L2 norm of its features together."""
        return 1.0

    def list_feature_names(self, column: str) -> list[str]:
        """Return `[width]` feature names."""
        return [column]


class _Scaled(_Feature):
    """Numbers with a public range."""

    range: tuple[Number, Number]
    """[low, high], within ±1e300, from public knowledge."""

    centre: Number | None = None
    """Value that becomes 0. Default: the middle of the range."""

    transform: Transform = "none"
    """For long tails. log: log(1 + (v − low)/(centre − low)). log1p: log(1 + v)."""

    outside: Literal["clamp", "refuse"] = "clamp"
    """What to do with a value outside the range: clamp it to the range, or refuse the file."""

    missing: Number | None = None
    """Value to use for an empty cell. Without it, an empty cell is an error."""

    @model_validator(mode="after")
    def _check(self) -> _Scaled:
        _require_range(self.range)
        _require_within("centre", self.centre, self.range)
        _require_within("missing", self.missing, self.range)
        _ = self.scale  # raises if the range does not allow the transform
        return self

    @property
    def scale(self) -> RangeScale:
        """The map of a value into [−1, 1]."""
        low, high = self.range
        return RangeScale(low=low, high=high, centre=self.centre, transform=self.transform)

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Clamp values of any shape to the range and map them into [−1, 1]."""
        return self.scale.encode(values)

    def decode(self, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values in the column's unit, within its range; the inverse of `encode`."""
        return self.scale.decode(scaled)


class NumericColumn(_Scaled):
    """One number per record.

    `centre` is the raw value that becomes 0 (default: the middle of the transformed range).
    `missing` replaces an empty value, which is an error without it. If records are counted in
    tables (`parley.client.data.record_discretization`), the range is cut into `bins` parts (16).
    With a `step`, values are whole numbers of steps from its low end.
    """

    kind: Literal["numeric"]
    bins: int | None = Field(default=None, strict=True, ge=2, le=65_536)
    """Number of intervals of the range, for synthetic tables. Default: 16."""

    step: Number | None = Field(default=None, gt=0)
    """Values are whole numbers of steps from the low end. Drawn rows and quantiles use it."""

    @model_validator(mode="after")
    def _check_step(self) -> NumericColumn:
        low, high = self.range
        if self.step is not None and not 1 <= (high - low) / self.step <= _MAX_STEPS:
            expected = f"a step that divides the range [{low:g}, {high:g}] into 1 to 2^53 steps"
            raise ValueError(f"Expected {expected}, got {self.step:g}.")
        return self


class ArrayColumn(_Scaled):
    """An array of numbers per record, all with one range, such as an image; .npz only."""

    kind: Literal["array"]
    shape: tuple[Annotated[int, Field(strict=True, ge=1)], ...] = Field(min_length=1)
    """Shape of one record's array, such as [8, 8]."""

    @property
    def width(self) -> int:
        """p, the number of entries."""
        return math.prod(self.shape)

    @property
    def squared_norm(self) -> float:
        """p, the bound of `_Feature` for an array."""
        return float(self.width)

    def list_feature_names(self, column: str) -> list[str]:
        """Return `[width]` names, in C order of the array."""
        return [f"{column}[{','.join(map(str, at))}]" for at in np.ndindex(*self.shape)]


class CategoricalColumn(_Feature):
    """One of the listed categories, one-hot.

    With `other`, a category that is not listed goes to its own bucket. So does an empty value if
    `missing` names no category. Without `other`, both are errors.
    """

    kind: Literal["categorical"]
    categories: tuple[Value, ...] = Field(min_length=1)
    """All categories. 1, 1.0 and "1" are the same category."""

    other: bool = Field(default=False, strict=True)
    """Add a bucket for unlisted values. Without it, an unlisted value is an error."""

    missing: Value | None = None
    """Category to use for an empty cell. Without it, the bucket, or an error."""

    @model_validator(mode="after")
    def _check(self) -> CategoricalColumn:
        _require_distinct("categories", self.categories)
        if self.missing is not None and canonicalize_text(self.missing) not in self.texts:
            raise ValueError(f"Expected missing to be a category listed, got {self.missing!r}.")
        return self

    @property
    def texts(self) -> list[str]:
        """The categories in canonical form."""
        return [canonicalize_text(value) for value in self.categories]

    @property
    def width(self) -> int:
        """Number of features: one per cell."""
        return len(self.categories) + self.other

    @property
    def cells(self) -> tuple[str, ...]:
        """`[width]` the categories in canonical form; the bucket for others, if any, is last."""
        return (*self.texts, *[OTHER][: self.other])

    def list_feature_names(self, column: str) -> list[str]:
        """Return `[width]` feature names."""
        return [f"{column}={cell}" for cell in self.cells]


class IgnoreColumn(SchemaPart):
    """A column that is not used. It may still assign records to parties."""

    kind: Literal["ignore"]


class LabelColumn(SchemaPart):
    """The label, with at least one of three readings, as the models need.

    Attributes:
        positive, negative: lists of values for two labels; one of them may be "rest".
        classes: for softmax; class k is the k-th value listed.
        range, centre, outside: for ridge; [low, high] is mapped into [−1, 1], the centre to 0.
        missing: "refuse" refuses a file that has a record without a label. "drop" leaves the record
            out before anything is counted, drawn or split. A label is missing if it is empty, NaN,
            or one of `MISSING_TEXTS` and `file.null-values` that the schema does not list.
    """

    kind: Literal["label"]
    positive: tuple[Value, ...] | Literal["rest"] | None = None
    """For two labels: a value or a list. "rest" takes every label that negative does not list."""

    negative: tuple[Value, ...] | Literal["rest"] | None = None
    """For two labels: a value or a list. "rest" takes every label that positive does not list."""

    classes: tuple[Value, ...] | None = Field(default=None, min_length=2)
    """For several classes: class k is the k-th value listed."""

    range: tuple[Number, Number] | None = None
    """For regression: [low, high], the target's public range."""

    centre: Number | None = None
    """With range: the value that becomes 0, where learning begins. Default: the middle."""

    outside: Literal["clamp", "refuse"] = "clamp"
    """With range: what to do with a value outside it: clamp it, or refuse the file."""

    missing: Literal["refuse", "drop"] = "refuse"
    """What to do with a record without a label: refuse the file, or drop the record before anything
    is counted.
    """

    @field_validator("positive", "negative", mode="before")
    @classmethod
    def _wrap_value(cls, value: object) -> object:
        given = value is None or value == "rest" or isinstance(value, list | tuple)
        return value if given else [value]

    @model_validator(mode="after")
    def _check(self) -> LabelColumn:
        if (self.positive is None) != (self.negative is None):
            missing = "negative" if self.negative is None else "positive"
            raise ValueError(
                f'Expected positive and negative together, {missing} is missing ("rest" '
                "means every other value)."
            )
        if self.positive == "rest" and self.negative == "rest":
            raise ValueError('Expected "rest" for one of positive and negative, got it for both.')
        sides = [s for s in (self.positive, self.negative) if isinstance(s, tuple)]
        if any(not side for side in sides):
            raise ValueError("Expected at least one value in positive and negative, got [].")
        _require_distinct("positive and negative values", [v for side in sides for v in side])
        if self.classes is not None:
            _require_distinct("classes", self.classes)
        if self.range is not None:
            _require_range(self.range)
            _require_within("centre", self.centre, self.range)
        elif self.centre is not None:
            raise ValueError(f"Expected centre only with a range, got {self.centre:g} without one.")
        if self.positive is None and self.classes is None and self.range is None:
            raise ValueError(
                "Expected what the label means: positive and negative (two labels),"
                " classes (softmax) or range (ridge), got none of them."
            )
        return self

    @property
    def scale(self) -> RangeScale:
        """The map of a target into [−1, 1]."""
        low, high = self.range or (-1.0, 1.0)
        return RangeScale(low=low, high=high, centre=self.centre)

    @property
    def texts(self) -> list[str]:
        """All listed values in canonical form."""
        lists = (self.positive, self.negative, self.classes)
        listed = [value for one in lists if isinstance(one, tuple) for value in one]
        return list(dict.fromkeys(canonicalize_text(value) for value in listed))

    def list_values(self, reading: str) -> tuple[Value, ...]:
        """Return the labels with the type that the schema gives them, in the order of `list_names`.

        If the labels have several types, or one is "not X", return their names instead.
        """
        names, key = self.list_names(reading), READINGS.get(reading, "classes")
        if key == "classes" and self.classes is not None:
            found: list[Value] = list(self.classes)
        else:
            sides = (self.negative, self.positive)
            found = [side[0] for side in sides if isinstance(side, tuple)]
        same = len({type(value) for value in found}) == 1
        return tuple(found) if same and len(found) == len(names) else names

    def list_names(self, reading: str) -> tuple[str, ...]:
        """Return the labels' names in the order of a model of that kind, or of a network.

        Ridge has none. Of two labels the negative one is first. If several values mean one label,
        its name is the first of them. "not X" means every value but X.
        """
        key = READINGS.get(reading, "classes")
        if key == "range":
            return ()
        if key == "classes" and self.classes is not None:
            return tuple(canonicalize_text(value) for value in self.classes)
        negative, positive = (
            canonicalize_text(side[0]) if isinstance(side, tuple) else ""
            for side in (self.negative, self.positive)
        )
        return negative or f"not {positive}", positive or f"not {negative}"


Column = NumericColumn | ArrayColumn | CategoricalColumn | IgnoreColumn | LabelColumn
