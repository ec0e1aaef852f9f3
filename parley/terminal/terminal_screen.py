"""The one way to what rich can do on a terminal: its own sequences, and nobody else's.

Text is text: no markup, no emoji by name. Whatever is shown is cleaned where it becomes part of a
line, after every table, column and style; what steers the terminal is rich's alone.

Also here: plain tables in which nothing is cut: what does not fit goes on in the next line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.file_proxy import FileProxy
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from parley.safe_io.printable_text import guard_streams, to_printable


def build_plain_table(
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


class Screen(Console):
    """A console for text that came from elsewhere."""

    def __init__(self, *, stderr: bool = False, **settings: Any) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
            stream = inner
        super().__init__(file=stream, markup=False, emoji=False, highlight=False, **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The parts of what is shown, each clean."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(to_printable(part.text), part.style)


def guard_redirected() -> None:
    """While rich draws something anew, it looks for sequences in what others write: none is left.

    What it put in the place of the streams goes when it ends, and this with it.
    """
    if isinstance(sys.stderr, FileProxy):
        guard_streams()
