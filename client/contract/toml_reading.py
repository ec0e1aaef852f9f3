"""TOML that a person wrote, parsed: whatever is wrong with it is one kind of error.

The parser follows nested values by recursion, and so does much that is done with them afterwards
(printing, checking): a file of ten thousand brackets would end in a RecursionError far from its
cause. No file of ours nests deeper than a few levels.

    >>> parse_toml("a.b = [1, 2]")
    {'a': {'b': [1, 2]}}
    >>> parse_toml("a = " + "[" * 5000)
    Traceback (most recent call last):
    tomllib.TOMLDecodeError: values nested at most 20 deep, got deeper ones
"""

from __future__ import annotations

import tomllib
from typing import Any

__all__ = ["parse_toml"]

_DEEPEST = 20
_TOO_DEEP = f"values nested at most {_DEEPEST} deep, got deeper ones"


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in `text`.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML, or nests deeper than any file of ours.
    """
    try:
        parsed = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(_TOO_DEEP) from None
    level: list[Any] = [parsed]
    for _ in range(_DEEPEST):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise tomllib.TOMLDecodeError(_TOO_DEEP)
    return parsed


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
