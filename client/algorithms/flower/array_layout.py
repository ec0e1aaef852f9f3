"""`ArrayLayout`: names, shapes and types of a model's arrays, and their order in one flat vector.

The layout is part of the task, so server and parties agree on it. An app's reply must fit it in
every round.

    >>> layout = ArrayLayout.from_arrays({"w": np.zeros((2, 2), np.float32), "b": np.zeros(2)})
    >>> layout.dimension, layout.flatten(layout.split(np.arange(6.0))).tolist()
    (6, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.strict_decoding import MAX_TEXT_LENGTH, DecodingError
from parley.client.models.linear_model_codec import MAX_MODEL_SIZE, MAX_PARAMETER
from parley.safe_io.error_translation import translate_errors

_TYPES = ("float16", "float32", "float64")
_MAX_ARRAYS = 4096
_MAX_DIMENSIONS = 32


class ArrayLayoutError(ValueError):
    """Arrays that do not fit a layout, or that no layout describes; the message has no value."""


@dataclass(frozen=True)
class ArraySlot:
    """One array of a layout."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ArrayLayout:
    """Order, names, shapes and types of the arrays of a model."""

    slots: tuple[ArraySlot, ...]

    @cached_property
    def dimension(self) -> int:
        """d, the number of entries of all arrays."""
        return sum(slot.size for slot in self.slots)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the layout of named arrays of finite real numbers. Raises ArrayLayoutError."""
        for name, array in arrays.items():
            if str(array.dtype) not in _TYPES:
                raise ArrayLayoutError(
                    f"Expected arrays of {', '.join(_TYPES)}, got {array.dtype} in {name!r}. "
                    "Noise can be added only to real numbers. Batch normalisation counts "
                    "batches: use group normalisation."
                )
            if not (np.abs(array, dtype=np.float64) < MAX_PARAMETER).all():
                raise ArrayLayoutError(f"Expected finite numbers in {name!r}, got others.")
        slots = (ArraySlot(name, str(array.dtype), array.shape) for name, array in arrays.items())
        layout = cls(tuple(slots))
        with translate_errors(DecodingError, ArrayLayoutError):
            return cls.from_json(layout.to_json())

    def flatten(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return `[d]` of arrays that fit the layout, as a copy. Raises ArrayLayoutError."""
        names = [slot.name for slot in self.slots]
        if arrays.keys() != set(names):  # the reply's names are not shown: an app chooses them
            shown = ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")
            others = len(arrays.keys() - set(names))
            expected = f"Expected the {len(names)} arrays that it was given ({shown})"
            raise ArrayLayoutError(f"{expected}, got {len(arrays)}, {others} of another name.")
        flat = np.empty(self.dimension)
        begin = 0
        for slot in self.slots:
            array = arrays[slot.name]
            if array.shape != slot.shape or array.dtype.kind not in "fiu":
                expected = f"Expected {slot.name!r} as numbers of shape {list(slot.shape)}"
                got = f"{array.dtype} of shape {list(array.shape)}"
                raise ArrayLayoutError(f"{expected}, got {got}.")
            flat[begin : begin + slot.size] = array.reshape(-1)
            begin += slot.size
        return flat

    def split(self, theta: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return fresh arrays by name, with the entries of `[d]` in their own types."""
        arrays, begin = {}, 0
        for slot in self.slots:
            with np.errstate(over="ignore"):  # beyond float32 it is infinite
                own = theta[begin : begin + slot.size].astype(slot.dtype)
            arrays[slot.name] = own.reshape(slot.shape)
            begin += slot.size
        return arrays

    def to_json(self) -> list[list[Any]]:
        """Return plain JSON values."""
        return [[slot.name, slot.dtype, list(slot.shape)] for slot in self.slots]

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the layout that `to_json` described. Raises DecodingError."""
        if not isinstance(value, list) or not 1 <= len(value) <= _MAX_ARRAYS:
            raise DecodingError(f"Expected 1 to {_MAX_ARRAYS} arrays in a layout, got others.")
        layout = cls(tuple(map(_parse_slot, value)))
        if len({slot.name for slot in layout.slots}) < len(layout.slots):
            raise DecodingError("Expected arrays of different names, got two of one name.")
        if not 1 <= layout.dimension <= MAX_MODEL_SIZE:
            expected = f"Expected a model of 1 to {MAX_MODEL_SIZE} parameters"
            raise DecodingError(f"{expected}, got {layout.dimension}.")
        return layout


def _parse_slot(value: Any) -> ArraySlot:
    if isinstance(value, list) and len(value) == 3:
        name, dtype, shape = value
        is_named = isinstance(name, str) and name.isprintable() and len(name) <= MAX_TEXT_LENGTH
        has_shape = isinstance(shape, list) and len(shape) <= _MAX_DIMENSIONS
        has_shape = has_shape and all(type(n) is int and 0 <= n <= MAX_MODEL_SIZE for n in shape)
        # Axes of size 0 hide none that numpy would refuse.
        is_small = has_shape and math.prod(size or 1 for size in shape) <= MAX_MODEL_SIZE
        if is_named and dtype in _TYPES and is_small:
            return ArraySlot(name, dtype, tuple(shape))
    raise DecodingError("Expected a name, a type of reals and a shape per array, got others.")
