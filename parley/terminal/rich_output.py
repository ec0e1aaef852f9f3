"""Use rich on a terminal so that only rich's control sequences reach it.

Text stays text: no markup, no emoji by name. All shown text is cleaned where it becomes part of a
line, after tables, columns and styles. Plain tables wrap long cells and cut nothing.
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
    """Return a table without a frame.

    Args:
        left: number of columns with words, before those with numbers; None if all have words.
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
    """A console for untrusted text."""

    def __init__(self, *, stderr: bool = False, **settings: Any) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
            stream = inner
        super().__init__(file=stream, markup=False, emoji=False, highlight=False, **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the clean parts of what is shown."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(to_printable(part.text), part.style)


def guard_redirected() -> None:
    """Remove control sequences from other output while rich redraws and redirects the streams.

    The guard ends with rich's redirection.
    """
    if isinstance(sys.stderr, FileProxy):
        guard_streams()


def print_lines(lines: Iterable[str], screen: Screen | None = None) -> None:
    """Print lines that are broken already. A narrow terminal breaks them only to the eye, so that
    paths in them can be copied.
    """
    screen = screen or Screen()
    for line in lines:
        screen.print(line, soft_wrap=True)
