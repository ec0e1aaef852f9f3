"""Values that came over the network, made into frozen facts: length, type, range, then meaning.

`facts_from(Class, mapping)` builds a dataclass from plain JSON values. Its keys must be exactly the
class's fields and every value of the field's type; ranges and meaning are then the class's own
checks. Nothing is coerced but an integer where a float is expected.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Step:
    ...     rate: float
    ...     count: int
    >>> facts_from(Step, {"rate": 1, "count": 2})
    Step(rate=1.0, count=2)
    >>> facts_from(Step, {"rate": 1.0, "count": True})
    Traceback (most recent call last):
        ...
    parley.client.contract.decoding.DecodingError: Expected Step.count to be int, got bool.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["LONGEST_TEXT", "DecodingError", "as_came", "facts_from", "value_from"]

LONGEST_TEXT = 512
"""Most characters of any text value."""
_LONGEST_LIST = 64
_LONGEST_SHOWN = 40

Facts = TypeVar("Facts")


class DecodingError(ValueError):
    """A value from the network that is not what was expected; it names the field and the types."""


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def facts_from(kind: type[Facts], value: Any, **given: Any) -> Facts:
    """A `kind` from a mapping of plain JSON values.

    Args:
        kind: a frozen dataclass.
        value: what came.
        given: fields that are decoded already (those are not looked for in `value`).

    Raises:
        DecodingError: not a mapping, a key too many or too few, a value of another type, or one
            that the class itself refuses.
    """
    name = kind.__name__
    if not isinstance(value, Mapping):
        raise DecodingError(f"Expected {name} as an object, got {type(value).__name__}.")
    known: Any = kind
    hints = {key: hint for key, hint in _hints(known).items() if key not in given}
    if set(value) != set(hints):
        unknown = sorted(str(key)[:40] for key in set(value) ^ set(hints))
        raise DecodingError(f"Expected the {len(hints)} keys of {name}, got others: {unknown[:5]}.")
    decoded = {key: value_from(hint, value[key], f"{name}.{key}") for key, hint in hints.items()}
    try:
        return kind(**decoded, **given)
    except DecodingError:
        raise
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        raise DecodingError(f"{name}: {str(error)[:LONGEST_TEXT]}") from error


def as_came(value: object) -> str:
    """What a peer sent as an error names it: the start of a text, a number, or the type.

    >>> as_came("frobnicate"), as_came(-1), as_came([1, 2])
    ("'frobnicate'", '-1', 'list')
    """
    if isinstance(value, str):
        return ascii(value[:_LONGEST_SHOWN])
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return str(value)
    return type(value).__name__


def value_from(hint: Any, value: Any, name: str) -> Any:  # noqa: PLR0911, PLR0912 - one a kind of hint
    """A value of the type that `hint` says.

    Raises:
        DecodingError: it is of another type, not finite, or too long.
    """
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in get_args(hint):
            return None
        (hint,) = [kind for kind in get_args(hint) if kind is not type(None)]
        return value_from(hint, value, name)
    if origin is Literal:
        if value not in get_args(hint) or not isinstance(value, str):
            raise DecodingError(
                f"Expected {name} to be one of {get_args(hint)}, got {as_came(value)}."
            )
        return value
    if origin is tuple:
        item = get_args(hint)[0]
        if not isinstance(value, list) or len(value) > _LONGEST_LIST:
            raise DecodingError(f"Expected {name} to be a list of at most {_LONGEST_LIST} items.")
        return tuple(value_from(item, part, name) for part in value)
    if origin is Mapping:
        item = get_args(hint)[1]
        if not isinstance(value, dict) or len(value) > _LONGEST_LIST:
            raise DecodingError(f"Expected {name} to be an object of at most {_LONGEST_LIST} keys.")
        keys = {value_from(str, key, f"a key of {name}"): part for key, part in value.items()}
        return {key: value_from(item, part, f"{name}.{key}") for key, part in keys.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            expected = ", ".join(str(member.value) for member in hint)
            raise DecodingError(
                f"Expected {name} to be one of {expected}, got {as_came(value)}."
            ) from None
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 2**1000 else math.inf
        if not math.isfinite(number):
            raise DecodingError(f"Expected {name} to be a finite number, got {as_came(value)}.")
        return number
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 2**63:
            raise DecodingError(f"Expected |{name}| below 2^63, got a larger one.")
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise DecodingError(
                f"Expected {name} of at most {LONGEST_TEXT} characters, got {len(value)}."
            )
        return value
    expected = getattr(hint, "__name__", str(hint))
    raise DecodingError(f"Expected {name} to be {expected}, got {type(value).__name__}.")
