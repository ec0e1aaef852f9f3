"""Layout of short outputs: named rows that fit a terminal of 80 columns and 15 lines.

Terminal, `print(run)` and notebooks show the lines that `format_rows` returns.

    >>> print(*format_rows([Row("Privacy", "ε = 1 at δ = 1e-05"), Row("", "5 parties")]), sep="\\n")
    Privacy      ε = 1 at δ = 1e-05
    5 parties
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from parley.safe_io.printable_text import to_one_line

WIDTH, MAX_LINES = 80, 15
_TITLE_WIDTH = 13


class Row(NamedTuple):
    """A title and its text; a text without a title begins at the left edge.

    Attributes:
        rank: The row of the highest rank is left out first if all rows together are too long. A row
            of rank 0 always stays.
        whole: Never break the text, for example because it is a path to copy.
    """

    title: str
    text: str
    rank: int = 0
    whole: bool = False

    @property
    def lines(self) -> list[str]:
        """The row's lines."""
        text = to_one_line(self.text)
        first = f"{to_one_line(self.title):<{_TITLE_WIDTH}}" if self.title else ""
        if self.whole:
            return [f"{first}{text}"]
        later = " " * len(first)
        return textwrap.wrap(
            text, WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False
        )


def format_rows(rows: Sequence[Row]) -> list[str]:
    """Return the lines of all rows, without the least important ones if they exceed 15 lines."""
    shown = [row for row in rows if row.text]
    while sum(len(row.lines) for row in shown) > MAX_LINES:
        least = max(shown, key=lambda row: row.rank)
        if least.rank == 0:
            break
        shown.remove(least)
    return [line for row in shown for line in row.lines]
