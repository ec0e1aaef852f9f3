"""Plain tables in which nothing is cut: what does not fit goes on in the next line.

Names, ids and paths are there to be copied, and rich would end them in "…".
"""

from __future__ import annotations

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text


def plain_table(
    *headings: str | Text, left: int | None = None, title: str | None = None, header: bool = True
) -> Table:
    """A table without a frame.

    Args:
        left: so many of them hold words, the others numbers; None: all of them words.
    """
    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, show_header=header,
        header_style="bold",
    )  # fmt: skip
    for at, heading in enumerate(headings):
        justify: JustifyMethod = "left" if left is None or at < left else "right"
        table.add_column(heading, overflow="fold", justify=justify)
    return table
