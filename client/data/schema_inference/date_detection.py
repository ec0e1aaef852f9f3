"""Detection of dates and times written as whole numbers: 20240131, 202401, seconds since 1970.

Taken as numbers, December 31 and January 1 would be 8,870 apart. A draft of a schema ignores such a
column and names the format, so that a person can derive an age or a number of days from it.

    >>> import polars as pl
    >>> find_date_form(pl.Series([20240131, 20231224, 20240229]))
    'YYYYMMDD'
    >>> find_date_form(pl.Series([20240131, 20241399])), find_date_form(pl.Series([1931, 2004]))
    ('', '')
"""

from __future__ import annotations

import polars as pl

_FIRST_YEAR, _LAST_YEAR = 1900, 2100
_MIN_DATE = 10_000
_MAX_MARKS = 3
"""Maximum number of different values that may mean no date, such as 0 or 99999999."""

_EPOCHS = {"seconds": 1, "milliseconds": 10**3}
_EPOCH_RANGE = (946_684_800, 2_051_222_400)
"""2000-01-01 to 2035-01-01, in seconds since 1970. Earlier times are taken as numbers. Finer units
have 16 digits or more, as codes do.
"""

_MIN_DISTINCT = {"YYMMDD": 20, "seconds": 10}
"""Minimum number of different values per format. Other numbers can have the format by chance."""


def find_date_form(numbers: pl.Series) -> str:
    """Return the format in which all numbers are dates or times; empty if there is none.

    Up to three other values are allowed if they fill fewer than half of the cells.

    Args:
        numbers: whole numbers, null for a missing one.
    """
    if not numbers.null_count() < len(numbers) or int(numbers.max()) < _MIN_DATE:  # type: ignore[arg-type]
        return ""
    values = numbers.drop_nulls().value_counts(name="records")
    shown, records = values[:, 0].cast(pl.Int64, strict=False), values["records"]
    for form, dates in _match_forms(shown).items():
        fits = dates.fill_null(False)  # beyond 64 bits
        others = records.filter(~fits)
        if len(others) > _MAX_MARKS or 2 * int(others.sum()) >= int(records.sum()):
            continue
        if int(fits.sum()) >= max(_MIN_DISTINCT.get(form.split()[0], 2), 2 * len(others)):
            return form
    return ""


def _match_forms(values: pl.Series) -> dict[str, pl.Series]:
    """Return format → `[K]` whether each value is a date in it, the likeliest format first."""
    year, middle, first = values % 10_000, values // 10_000 % 100, values // 1_000_000
    fits = {
        "YYYYMMDD": _is_packed_date(values),
        "YYYYMMDDhhmmss": _is_packed_date(values // 1_000_000) & _is_clock(values % 1_000_000),
        "YYYYMMDDhhmm": _is_packed_date(values // 10_000) & _is_clock(values % 10_000 * 100),
        "DDMMYYYY": _is_date(year, middle, first),
        "MMDDYYYY": _is_date(year, first, middle),
        "YYYYMM": _is_date(values // 100, values % 100, values * 0 + 1),
        "YYMMDD": _is_packed_date(values + 19_000_000) & values.is_between(10_000, 999_999),
    }
    low, high = _EPOCH_RANGE
    for unit, factor in _EPOCHS.items():
        fits[f"{unit} since 1970"] = values.is_between(low * factor, high * factor)
    return fits


def _is_packed_date(yyyymmdd: pl.Series) -> pl.Series:
    """Return `[K]` whether each number is a day, written year, month, day."""
    return _is_date(yyyymmdd // 10_000, yyyymmdd // 100 % 100, yyyymmdd % 100)


def _is_date(year: pl.Series, month: pl.Series, day: pl.Series) -> pl.Series:
    """Return `[K]` whether such a day exists."""
    longest = pl.Series([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    last = longest.gather(month.clip(0, 12).cast(pl.Int64))
    month_exists = year.is_between(_FIRST_YEAR, _LAST_YEAR) & month.is_between(1, 12)
    return month_exists & (day >= 1) & (day <= last)


def _is_clock(hhmmss: pl.Series) -> pl.Series:
    """Return `[K]` whether hours, minutes and seconds are a time of day."""
    hours, minutes, seconds = hhmmss // 10_000, hhmmss // 100 % 100, hhmmss % 100
    return hours.is_between(0, 23) & minutes.is_between(0, 59) & seconds.is_between(0, 59)
