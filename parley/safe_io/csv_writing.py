"""CSV in which no text is a formula, whoever opens it in a spreadsheet and whoever wrote the text.

One that a spreadsheet would compute has ' before it; numbers are as they were.

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
"""How one begins: full-width signs are signs to some."""
_NUMBER = r"^[+-]?[0-9.,]*([eE][+-]?[0-9]+)?$"


def escape_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The same frame, with such texts and names of columns as texts."""
    texts = cs.string()
    guarded = pl.when(texts.str.contains(_NUMBER)).then(texts)
    return frame.with_columns(guarded.otherwise(texts.str.replace(_FORMULA, "'${0}"))).rename(
        _escape_cell
    )


def format_csv(head: Iterable[str], rows: Iterable[Iterable[object]], *, note: str) -> str:
    """A CSV whose first line says, after #, what it cost."""
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
