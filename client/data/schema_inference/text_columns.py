"""Treatment of a column of texts by a schema's draft: as categories, as a label, or ignored.

>>> import polars as pl
>>> build_text_entry(pl.Series(["north", "south"] * 10 + [None]), missing_count=1,
...     max_categories=50)[0]["categories"]
['north', 'south']
>>> split_label_sides(["Yes", "no", "YES", "No"])
(['YES', 'Yes'], ['No', 'no'])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from parley.client.data.column_types import LONG_CODE, WHOLE_NUMBER, canonicalize_text
from parley.client.data.unreadable_numbers import describe_signs, find_signs

_POSITIVE = {"1", "true", "yes", "y", "t", "positive", "pos", "case", "sick", "malignant"}
_POSITIVE |= {"ja", "oui", "si", "sí", "sim", "tak"}
_NEGATIVE = {"0", "false", "no", "n", "f", "negative", "neg", "control", "healthy", "benign"}
_NEGATIVE |= {"nein", "non", "não", "nie"}
_SHORT = {"y": "yes", "n": "no", "t": "true", "f": "false", "pos": "positive", "neg": "negative"}
_DATE = r"^\d{4}-\d\d?-\d\d?|^\d\d?[./]\d\d?[./]\d{2,4}|^\d\d?:\d\d"
_LEADING_ZEROS = r"^0\d\d+$"
_MIN_DIFFERENT = 10
_FREQUENT, _COVERED = 0.01, 0.5
MIN_RECORDS = 10
"""Minimum number of records of a text that a draft names as a category."""
_READ = "categories read from the data"
AS_TEXT = "numbers that are stored as text: stored as numbers they can be learned from"
POINTS = (
    "numbers with points in a file with decimal commas: thousands marks? Written plainly they can "
    "be learned from"
)
DATES = "dates or times: only what is made of them beforehand can be learned (a year, days since)"


def has_only_codes(texts: pl.Series) -> bool:
    """Return whether texts are digits but not numbers: postcodes, 01069, or 16 digits.

    >>> has_only_codes(pl.Series(["9007199254740993.0", "7.0"])), has_only_codes(pl.Series(["7.0"]))
    (True, False)
    """
    # Most columns are decided by their first cell.
    if not len(texts) or not re.fullmatch(r"[+-]?\d+(\.0+)?", texts[0]):
        return False
    texts = texts.str.replace(WHOLE_NUMBER, "$1")
    if not texts.str.contains(f"{_LEADING_ZEROS}|{LONG_CODE}").any():
        return False
    for code, digits in ((_LEADING_ZEROS, r"^\d+$"), (LONG_CODE, r"^[+-]?\d+$")):
        if bool(texts.str.contains(code).any()) and bool(texts.str.contains(digits).all()):
            return True
    return False


def are_usual_words(values: Sequence[Any]) -> bool:
    """Return whether all labels are common words for yes and no.

    >>> are_usual_words(["yes", "No"]), are_usual_words([0, 1]), are_usual_words(["yes", "X"])
    (True, True, False)
    """
    words = {canonicalize_text(value).lower() for value in values}
    return words <= _POSITIVE | _NEGATIVE


def split_label_sides(texts: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """Return the spellings of the positive and the negative label; None unless there are two."""
    spelt: dict[str, list[Any]] = {}
    for text in sorted(texts):
        word = canonicalize_text(text).lower()
        spelt.setdefault(_SHORT.get(word, word), []).append(text)
    if len(spelt) != 2:
        return None
    first, second = spelt.values()
    positive = canonicalize_text(first[0]).lower() in _POSITIVE
    return (first, second) if positive else (second, first)


def _explain_no_categories(present: pl.Series, max_categories: int) -> str:
    """Return why texts are not categories; empty if they may be."""
    distinct = present.n_unique()
    if re.search(_DATE, present[0]) and bool(present.str.contains(_DATE).all()):
        return DATES
    different = distinct == len(present) >= _MIN_DIFFERENT
    if (distinct > max_categories or different) and not has_only_codes(present):
        if signs := find_signs(present):
            return describe_signs(signs)
        if present.cast(pl.Float64, strict=False).null_count() == 0:
            return AS_TEXT
    if different and distinct <= max_categories:
        return "a different text in every record: an identifier?"
    return ""


def build_text_entry(
    series: pl.Series, missing_count: int, max_categories: int
) -> tuple[dict[str, Any], str]:
    """Return the entry of a column of at least two texts, and the reason.

    Args:
        series: texts or truth values, null for a missing one.
        missing_count: number of missing values.
        max_categories: maximum number of distinct texts for which all are listed.
    """
    present = series.drop_nulls()
    distinct = present.n_unique()
    counts = present.value_counts(name="records")
    common = counts.filter(counts["records"] >= MIN_RECORDS)
    listed, why = sorted(common[:, 0].to_list()), f"{distinct} texts; {_READ}"
    other = bool(missing_count)
    if series.dtype == pl.String:
        if reason := _explain_no_categories(present, max_categories):
            return {"kind": "ignore"}, reason
        if distinct > max_categories:
            frequent = common.filter(common["records"] >= _FREQUENT * len(series))
            covered = int(frequent["records"].sum()) >= _COVERED * len(series)
            mostly_numbers = 2 * present.cast(pl.Float64, strict=False).count() > len(present)
            if not covered or (mostly_numbers and not has_only_codes(present)):
                why = f"{distinct} distinct texts (names, identifiers?): too many for categories"
                return {"kind": "ignore"}, why
            listed = sorted(frequent[:, 0].to_list())
            why = f"{distinct} texts; {_READ}: those of 1 % of the records, {len(listed)}"
            why, other = f"{why}; all others share the bucket of other categories", True
    if not listed:
        return {"kind": "ignore"}, f"{distinct} texts, none in {MIN_RECORDS} records or more"
    if distinct <= max_categories and (rare := distinct - len(listed)):
        why += f"; {rare} of fewer than {MIN_RECORDS} records are not named: "
        why += "they go to the bucket of other categories"
        other = True
    entry: dict[str, Any] = {"kind": "categorical", "categories": listed}
    if other:
        entry["other"] = True
    if missing_count:
        why += "; missing values go to the bucket of other categories"
    return entry, why
