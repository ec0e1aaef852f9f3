"""Render documents in a terminal: facts as two columns, tables without frames, no plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.text import Text as StyledText

from parley.presentation.document import (
    Code,
    Document,
    Facts,
    Figures,
    Heading,
    Items,
    Section,
    Table,
    Text,
)
from parley.safe_io.printable_text import to_one_line
from parley.terminal.rich_output import Screen, build_plain_table, print_lines

_EMPHASISED = {"promise", "spent", "charged"}
"""Titles of sections that are shown in bold."""
_FEW, _NARROWEST = 4, 88
"""Columns of a narrow table. For wider ones the terminal's columns below which numbers would be
cut: a narrower terminal wraps the lines.
"""


def print_document(document: Document) -> None:
    """Print a document: headline, warnings, figures, then its sections."""
    screen = Screen()
    if any(_has_wide_table(section) for section in document.sections):
        screen.width = max(screen.width, _NARROWEST)
    if document.headline:
        screen.print(f"{to_one_line(document.headline)}\n")
    if document.lede:
        screen.print(to_one_line(document.lede))
    for status in document.statuses:
        mark = " *" if status.simulated else ""
        style = "" if status.good else "yellow"
        screen.print(to_one_line(f"{status.text}{mark}"), style=style)
    for notice in document.notices:
        screen.print(to_one_line(notice), style="yellow")
    for card in document.cards:
        screen.print(to_one_line(f"{card.title}: {card.value}"))
    for are_rows, sections in groupby(document.sections, _is_row):
        if are_rows:
            screen.print(_build_section_table(sections))
        else:
            for section in sections:
                _print_section(screen, section)
    if document.footer:
        screen.print(to_one_line(document.footer))


def _has_wide_table(section: Section) -> bool:
    return any(isinstance(part, Table) and len(part.head) > _FEW for part in section.parts)


def _is_row(section: Section) -> bool:
    """Return whether a section is a row: a title, and facts in one line."""
    facts = [part for part in section.parts if isinstance(part, Facts)]
    is_short = bool(section.title) or sum(len(part.facts) for part in facts) == 1
    return is_short and len(facts) == len(section.parts)


def _build_section_table(sections: Iterable[Section]) -> Any:
    """Return one row per section: title and brief facts."""
    table = build_plain_table("", "", header=False)
    for section in sections:
        style = "bold" if section.title in _EMPHASISED else ""
        table.add_row(
            StyledText(section.title, style="dim"),
            StyledText(to_one_line(section.line), style=style),
        )
    return table


def _print_section(screen: Screen, section: Section) -> None:
    first = section.parts[0] if section.parts else None
    if section.title and isinstance(first, Code) and len(section.parts) == 1:
        # A whole line, which a terminal breaks only to the eye: it is there to be copied.
        screen.print(f"{section.title}  {first.text}", soft_wrap=True)
        return
    if section.title:
        screen.print(StyledText(to_one_line(section.title), style="bold"))
    for part in section.parts:
        _PRINTERS.get(type(part), _print_nothing)(screen, part)


def _print_nothing(screen: Screen, part: Any) -> None:
    """Print a part that has no words, such as a picture."""


def _print_text(screen: Screen, part: Text | Heading) -> None:
    style = "dim" if getattr(part, "style", "") == "fine" else ""
    screen.print(to_one_line(part.text), style=style)


def _print_items(screen: Screen, part: Items) -> None:
    for text in part.texts:
        screen.print(to_one_line(f"→ {text}"))


def _print_facts(screen: Screen, part: Facts) -> None:
    table = build_plain_table("", "", header=False)
    for fact in part.facts:
        table.add_row(StyledText(to_one_line(fact.name), style="dim"), to_one_line(fact.value))
    screen.print(table)


def _print_table(screen: Screen, part: Table) -> None:
    if part.caption:
        screen.print(to_one_line(part.caption))
    table = build_plain_table(*part.head, left=None if part.prose else _count_word_columns(part))
    for row in part.rows:
        table.add_row(*(to_one_line(cell.replace("\n", " ")) for cell in row))
    screen.print(table)
    screen.print()


def _count_word_columns(table: Table) -> int:
    """Return the number of columns before the first whose cells begin with a number."""
    first: Sequence[str] = table.rows[0] if table.rows else ()
    numbers = (at for at, cell in enumerate(first) if cell[:1].isdigit())
    return next(numbers, len(first))


def _print_code(screen: Screen, part: Code) -> None:
    print_lines((part.title or part.text).splitlines(), screen)


def _print_figures(screen: Screen, part: Figures) -> None:
    for figure in part.figures:
        screen.print(to_one_line(f"{figure.title}. {figure.finding}"))


_PRINTERS: dict[type, Callable[[Screen, Any], None]] = {
    Text: _print_text,
    Heading: _print_text,
    Items: _print_items,
    Facts: _print_facts,
    Table: _print_table,
    Code: _print_code,
    Figures: _print_figures,
}
"""Type of a part → function that prints it."""
