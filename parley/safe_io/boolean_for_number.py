"""Keys of files that take numbers. A truth value there is a mistake, not 1."""

from __future__ import annotations

from typing import Any, get_args


def is_truth_for_number(value: Any, annotation: Any) -> bool:
    """Return whether a truth value was given to a key that takes numbers and no truth values.

    >>> is_truth_for_number(True, int | None), is_truth_for_number(True, bool | int)
    (True, False)
    """
    types = _list_types(annotation)
    return isinstance(value, bool) and bool(types & {int, float}) and not types & {bool, Any}


def _list_types(annotation: Any) -> set[Any]:
    """Return the types in an annotation, at any depth."""
    return {annotation}.union(*map(_list_types, get_args(annotation)))
