"""Short forms of a schema's columns: a range, a list of categories, or None to ignore a column.

>>> expand_column("age", (0, 120), is_label=False)
{'kind': 'numeric', 'range': [0.0, 120.0]}
>>> expand_column("sick", ["no", "yes"], is_label=True)
{'kind': 'label', 'negative': 'no', 'positive': 'yes'}
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any


def expand_column(name: str, short: Any, *, is_label: bool) -> dict[str, Any]:
    """Return the column with the keys of a schema file.

    Raises:
        ValueError: the short form is none of those that `Schema.of` takes.
    """
    if short is None and not is_label:
        return {"kind": "ignore"}
    if isinstance(short, Mapping):
        return {"kind": "label", **short} if is_label else dict(short)
    if isinstance(short, tuple) and len(short) == 2 and all(map(_is_number, short)):
        return {"kind": "label" if is_label else "numeric", "range": [float(end) for end in short]}
    if isinstance(short, list | tuple) and len(short) > 1:
        values = [value.item() if hasattr(value, "item") else value for value in short]
        if not is_label:
            return {"kind": "categorical", "categories": values}
        if len(values) > 2:
            return {"kind": "label", "classes": values}
        return {"kind": "label", "negative": values[0], "positive": values[1]}
    raise ValueError(
        f"Expected column {name!r} to be (low, high) for numbers, a list of its categories, or "
        f"None to ignore it, got {short!r}."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
