"""Write standard JSON, in which a number that is not finite is null.

Python writes NaN and Infinity, which are not JSON (RFC 8259, section 6), so other readers fail. All
JSON that people or programs read about a run is written here.

    >>> format_json({"loss": float("nan"), "accuracy": [0.5, float("inf")]})
    '{"loss": null, "accuracy": [0.5, null]}'
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from parley.safe_io.printable_text import escape_unprintable


def format_json(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """Return a value as JSON text, with NaN and infinities as null."""
    write = partial(
        json.dumps,
        ensure_ascii=False,
        allow_nan=False,
        indent=indent,
        separators=(",", ":") if compact else None,
    )
    try:
        return escape_unprintable(write(value))
    except (TypeError, ValueError):  # rare: some values are not finite, or not plain
        return escape_unprintable(write(_replace_nonfinite(value)))


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _replace_nonfinite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(part) for part in value]
    return value
