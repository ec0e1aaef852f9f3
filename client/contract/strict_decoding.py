"""Strict decoding of network values into frozen dataclasses: length, type, range, then meaning.

`parse_strict_json` parses the text. `decode_dataclass(Class, mapping)` builds a dataclass from its
values. The keys must be exactly the class's fields, and every value must have its field's type.
Pydantic's engine checks this strictly, against the class's type hints. The class itself then checks
ranges and meaning. The only coercion is from an integer to an expected float.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Step:
    ...     rate: float
    ...     m: int
    >>> decode_dataclass(Step, {"rate": 1, "m": 2})
    Step(rate=1.0, m=2)
    >>> decode_dataclass(Step, {"rate": 1.0, "m": True})
    Traceback (most recent call last):
        ...
    parley.client.contract.strict_decoding.DecodingError: Expected Step.m to be a valid integer,...
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as schemas

MAX_TEXT_LENGTH = 512
"""Maximum number of characters of a text value."""
_MAX_LIST_LENGTH = 64
_SHORT: Any = {"max_length": _MAX_LIST_LENGTH, "fail_fast": True}
_LONGEST_SHOWN, _MOST_WORDS = 40, 160
_PLAIN: dict[Any, schemas.CoreSchema] = {
    object: schemas.any_schema(),  # the code that computes with it decodes it
    bool: schemas.bool_schema(strict=True),
    int: schemas.int_schema(strict=True, gt=-(2**63), lt=2**63),
    float: schemas.float_schema(strict=True, allow_inf_nan=False, gt=-(2.0**1000), lt=2.0**1000),
    str: schemas.str_schema(strict=True, max_length=MAX_TEXT_LENGTH),
}

Facts = TypeVar("Facts")


class DecodingError(ValueError):
    """Error for an unexpected network value. It names the field and the types."""


def decode_dataclass(kind: type[Facts], value: Any, **given: Any) -> Facts:
    """Build a `kind` from a mapping of plain JSON values.

    Args:
        given: fields that are decoded already; they are not read from `value`.

    Raises:
        DecodingError: `value` is not a mapping, has a key too many or too few, or has a value of
            another type or one that the class refuses.
    """
    name = kind.__name__
    known: Any = kind
    decoded = _validate(_build_fields_validator(known, frozenset(given)), value, name)
    try:
        return kind(**decoded, **given)
    except DecodingError:
        raise
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        raise DecodingError(f"{name}: {str(error)[:MAX_TEXT_LENGTH]}") from error


def format_received(value: object) -> str:
    """Return how an error names what a peer sent: the start of a text, a number, or the type.

    >>> format_received("frobnicate"), format_received(-1), format_received([1, 2])
    ("'frobnicate'", '-1', 'list')
    """
    if isinstance(value, str):
        return ascii(value[:_LONGEST_SHOWN])
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return str(value)
    return type(value).__name__


def decode_value(hint: Any, value: Any, name: str) -> Any:
    """Return a value after checking it against the type `hint`.

    Raises:
        DecodingError: it has another type.
    """
    return _validate(_build_validator(hint), value, name)


def _validate(expected: SchemaValidator, value: Any, name: str) -> Any:
    try:
        return expected.validate_python(value)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)[0]
    *inside, last = name, *(ascii(str(part)[:_LONGEST_SHOWN])[1:-1] for part in wrong["loc"])
    if wrong["type"] in ("missing", "extra_forbidden"):
        got = f"no {last}" if wrong["type"] == "missing" else f"{last} too"
        raise DecodingError(f"Expected exactly the keys of {'.'.join(inside)}, got {got}.")
    place = ".".join([*inside, last])
    _, _, what = wrong["msg"].partition(" should ")  # Input should be …, String should have …
    what, _, _ = what.partition(" after validation")
    is_long = wrong["type"] == "too_long"
    got = str(len(wrong["input"])) if is_long else format_received(wrong["input"])
    raise DecodingError(f"Expected {place} to {what[:_MOST_WORDS]}, got {got}.")


@lru_cache(maxsize=256)
def _build_fields_validator(kind: Any, excluded: frozenset[str]) -> SchemaValidator:
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind) if field.init} - excluded
    asked = {n: schemas.typed_dict_field(_build_schema(hints[n])) for n in hints if n in names}
    return SchemaValidator(schemas.typed_dict_schema(asked, extra_behavior="forbid"))


@lru_cache(maxsize=256)
def _build_validator(hint: Any) -> SchemaValidator:
    return SchemaValidator(_build_schema(hint))


def _build_schema(hint: Any) -> schemas.CoreSchema:
    """Return the check of pydantic's engine for a value with this type hint."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (hint,) = [kind for kind in args if kind is not type(None)]
        return schemas.nullable_schema(_build_schema(hint))
    if origin is Literal:
        return schemas.literal_schema(list(args))
    if origin is tuple:  # JSON has only lists
        return schemas.tuple_schema([_build_schema(args[0])], variadic_item_index=0, **_SHORT)
    if origin is Mapping:
        return schemas.dict_schema(*map(_build_schema, args), strict=True, **_SHORT)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return schemas.enum_schema(hint, list(hint))
    if hint not in _PLAIN:
        raise DecodingError(f"Expected a type that messages can contain, got {hint!s:.200}.")
    return _PLAIN[hint]


def parse_strict_json(data: bytes | str) -> Any:
    """Parse a peer's JSON. It must have finite numbers, distinct keys and bounded nesting.

    Raises:
        ValueError: it is anything else. The error never carries content.
    """
    try:
        return _JSON.decode(data if isinstance(data, str) else data.decode())
    except (ValueError, RecursionError):
        raise ValueError("Expected JSON of finite numbers and distinct keys.") from None


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("Expected every key once.")
    return found


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("Expected a finite number.")
    return number


_JSON = json.JSONDecoder(
    object_pairs_hook=_build_object, parse_float=_parse_finite, parse_constant=_parse_finite
)
