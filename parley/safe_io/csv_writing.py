"""Write CSV in which no text becomes a formula when it is opened in a spreadsheet.

A text that a spreadsheet would compute gets a leading '. Numbers do not change.

>>> format_csv(["city", "=1+1"], [["@SUM(A1)", -1.5], ["-7", "b"]], note="ε = 1").splitlines()
['# ε = 1', "city,'=1+1", "'@SUM(A1),-1.5", '-7,b']
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

import polars as pl
import polars.selectors as cs

from parley.safe_io.printable_text import to_one_line

_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Start of a formula. Some spreadsheets accept full-width signs, too."""
_NUMBER = r"^[+-]?[0-9.,]*([eE][+-]?[0-9]+)?$"


def escape_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with formulas in cells and column names escaped."""
    texts = cs.string()
    escaped = texts.str.replace(_FORMULA, "'${0}")
    guarded = pl.when(texts.str.contains(_NUMBER)).then(texts).otherwise(escaped)
    return frame.with_columns(guarded).rename(_escape_cell)


def format_csv(head: Iterable[str], rows: Iterable[Iterable[object]], *, note: str) -> str:
    """Return a CSV. Its first line, after #, contains the note on its cost."""
    text = io.StringIO()
    text.write(f"# {to_one_line(note)}\n")
    cells = (
        [to_one_line(_escape_cell(x)) if isinstance(x, str) else x for x in row]
        for row in (head, *rows)
    )
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()


def _escape_cell(cell: str) -> str:
    return cell if re.fullmatch(_NUMBER, cell) else re.sub(_FORMULA, r"'\g<0>", cell)
