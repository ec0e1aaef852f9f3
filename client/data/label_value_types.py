"""Which values can be labels: numbers, truth values or texts, all of one of these kinds.

Other objects would become labels by the text that they print as: bytes as "b'yes'", an object by
its address. Mixed kinds would all become text. Both are refused, with what to do instead.

    >>> describe_label_fault([b"no", b"yes"])
    'bytes (decode them to text first)'
    >>> describe_label_fault([1, "sick", None])
    'values of several types, int and str (make them one type, for example text)'
    >>> describe_label_fault([1, 0, None]), describe_label_fault(np.array([1.5, 2.5]))
    ('', '')
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

_BYTES = "bytes (decode them to text first)"
_DATES = "dates or times (a label is a class or an amount: write a class as text, a year as number)"
_COMPLEX = "complex numbers (give real ones, for example their absolute values)"
_BY_KIND = {
    "S": _BYTES,
    "M": _DATES,
    "m": _DATES,
    "c": _COMPLEX,
    "V": "records of several fields (give one field)",
}
"""Code of a numpy type → what it is, if it is no label."""
_LABELS = {"text", "truth value", "number"}
_FAMILIES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((str,), "text"),
    ((bool, np.bool_), "truth value"),
    ((int, float, Decimal, np.integer, np.floating), "number"),
    ((bytes,), _BYTES),
    ((datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64), _DATES),
    ((complex, np.complexfloating), _COMPLEX),
)
"""Types of objects → what they are. The first that fits counts: a truth value is an int, too."""
_MISSING = frozenset({"None", "nan", "NaN", "<NA>", "NaT"})
"""Texts of objects that mean a missing value, in any library."""


def is_missing(value: Any) -> bool:
    """Return whether an object means a missing value. A text never does, whatever its spelling."""
    return not isinstance(value, str) and str(value) in _MISSING


def describe_label_fault(values: Any) -> str:
    """Return what is wrong with the types of a column's values as labels; empty if nothing is."""
    cells, fault = _list_objects(values)
    kinds: dict[str, str] = {}
    for kind, example in {type(value): value for value in cells}.items():
        if not is_missing(example):
            family = next((name for types, name in _FAMILIES if isinstance(example, types)), None)
            if family is None:
                return f"objects of type {kind.__name__} (make them numbers or text)"
            if family not in _LABELS:
                return family
            kinds.setdefault(family, kind.__name__)
    if len(kinds) < 2:
        return fault
    named = " and ".join(sorted(kinds.values()))
    return f"values of several types, {named} (make them one type, for example text)"


def _list_objects(values: Any) -> tuple[list[Any], str]:
    """Return a column's values if they are objects; else none, and what is wrong with its type."""
    if isinstance(values, pl.Series):
        if values.dtype in (pl.Object, pl.Binary):
            return values.to_list(), ""
        return [], _DATES if values.dtype.is_temporal() else ""
    # A list of numbers and texts would become an array of texts.
    cells = np.asarray(values, object if isinstance(values, list | tuple) else None)
    if cells.dtype.kind != "O":
        return [], _BY_KIND.get(cells.dtype.kind, "")
    return [cell.item() if hasattr(cell, "item") else cell for cell in cells.ravel().tolist()], ""
