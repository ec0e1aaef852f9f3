"""Detection of signs that keep texts from being read as numbers: thousands marks, units, currency.

A draft of a schema names them, and so does the error of a run. A person then knows what to remove
from the cells. No function here changes a cell: only its author knows what `1.234` means.

    >>> import polars as pl
    >>> find_signs(pl.Series(["1,234", "999", "56,001"]))
    ('thousands marks',)
    >>> find_signs(pl.Series(["12 mg", "7 mg"])), find_signs(pl.Series(["north", "south"]))
    (('units',), ())
"""

from __future__ import annotations

import re

import polars as pl

_MIN_SHARE = 0.9
_MAX_UNITS = 3
_MARK = r"[.,'’\u00a0\u2007\u2009\u202f ]"
_DIGITS = rf"(?:\d{{1,3}}(?:{_MARK}\d{{2,3}})*{_MARK}\d{{3}}|\p{{Nd}}+)"
_PLAIN = rf"(?:{_DIGITS}(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d+)?"
_MONEY = r"(?:\p{Sc}|US\$|USD|EUR|GBP|CHF|JPY|kr)"
_UNIT = r"[A-Za-zµμ°Ω][A-Za-zµμ°Ω0-9/²³^.·]{0,9}"
_QUOTE = r"['\"‘’“”„«»]"
_SIGNED = (
    rf"^{_QUOTE}?\(?(?:<=?|>=?|≤|≥|~|≈)?\s?[-+−–]?\s?{_MONEY}?\s?[-+−–]?{_PLAIN}"
    rf"\s?(?:{_MONEY}|%|‰|{_UNIT})?\)?{_QUOTE}?$"
)
_SIGNS = {
    "thousands marks": rf"\d{_MARK}\d{{2,3}}{_MARK}\d{{3}}"
    r"|\d[,'’\u00a0\u2007\u2009\u202f ]\d{3}(?:\D|$)|\d\.\d{3}[,.]\d",
    "a minus sign that is not - (U+2212 or a dash)": r"[−–]",
    "percent signs": r"[%‰]",
    "currency signs": _MONEY,
    "signs for less or more": r"[<>≤≥~≈]",
    "brackets": r"[()]",
    "quotation marks": rf"^{_QUOTE}|{_QUOTE}$",
    "digits of another script": r"[\p{Nd}--[0-9]]",
}
_PLAINLY = "written plainly they can be learned from"


def find_signs(texts: pl.Series) -> tuple[str, ...]:
    """Return the names of the signs in texts that are mostly numbers; none if few are.

    Args:
        texts: cells without white space at their ends, none of them missing.
    """
    numbers = texts.filter(texts.str.contains(_SIGNED))
    if not len(texts) or len(numbers) <= _MIN_SHARE * len(texts):
        return ()
    found = [name for name, sign in _SIGNS.items() if bool(numbers.str.contains(sign).any())]
    commas = bool(numbers.str.contains(r"^[^.,]*,\d{1,2}(?:\D|$)|,\d{4}").any())
    points = bool(numbers.str.contains(r"^[^,]*\.\d").any())
    if commas and points and "thousands marks" not in found:
        found.append("both decimal points and commas")
    if units := _find_units(numbers):
        if len(units) > _MAX_UNITS:  # house numbers, codes
            return ()
        found.append("units")
    return tuple(found)


def _find_units(numbers: pl.Series) -> set[str]:
    """Return the different words after the numbers."""
    others = numbers.filter(~numbers.str.contains(rf"^[-+]?{_PLAIN}$"))
    words = others.str.extract(rf"(?:\d|[.,])\s?({_UNIT})\)?$").drop_nulls()
    return set(words.unique()) - {"USD", "EUR", "GBP", "CHF", "JPY", "kr"}


def describe_signs(signs: tuple[str, ...]) -> str:
    """Return a draft's remark on a column of numbers with such signs.

    >>> describe_signs(("thousands marks", "currency signs"))
    'numbers with thousands marks and currency signs: written plainly they can be learned from'
    """
    *first, last = signs
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"numbers with {listed}: {_PLAINLY}"


def has_thousands_pattern(texts: pl.Series, mark: str) -> bool:
    """Return whether every mark precedes exactly three digits, as thousands marks do.

    A number that begins with a zero, such as 0.125, has no thousands.

    >>> [has_thousands_pattern(pl.Series(cells), ".") for cells in (["1.234", "999"], ["0.125"])]
    [True, False]
    """
    grouped = rf"^[+-]?[1-9]\d{{0,2}}[{mark}]\d{{3}}$"
    # Most columns are decided by their first cell.
    if len(texts) and mark in texts[0] and not re.search(grouped, texts[0]):
        return False
    marked = texts.filter(texts.str.contains(mark, literal=True))
    return len(marked) > 0 and bool(marked.str.contains(grouped).all())
