"""Define a document: the content of a page, independent of the format that shows it.

Each kind of page has one builder, a row of `parley.presentation.page_registry`, which returns a
`Document`. `parley.presentation.html_renderer`, `parley.presentation.json_renderer` and
`parley.terminal.document_output` show any document.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from parley.server.statements.guarantee_text import Fact, join_facts


@dataclass(frozen=True)
class Text:
    """A paragraph. Commands in backticks are shown as code.

    Attributes:
        style: "fine" for small print, "then" for a line that introduces the next part.
    """

    kind: ClassVar = "text"

    text: str
    style: Literal["", "fine", "then"] = ""


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar = "heading"

    text: str
    simulated: bool = False


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    kind: ClassVar = "items"

    texts: Sequence[str]


@dataclass(frozen=True)
class Facts:
    """A list of named values."""

    kind: ClassVar = "facts"

    facts: Sequence[Fact]

    @property
    def line(self) -> str:
        """The brief facts in one line."""
        return join_facts(self.facts)


@dataclass(frozen=True)
class Code:
    """A text that is shown as it is: a command to copy, or a file.

    Attributes:
        title: Name of a file, which a screen folds.
        printed: Shorter text for paper.
    """

    kind: ClassVar = "code"

    text: str
    title: str = ""
    printed: str = ""


@dataclass(frozen=True)
class Picture:
    """An image of numbers, as an HTML element that escapes its own texts."""

    kind: ClassVar = "picture"

    html: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Card:
    """A figure at the head of a page or section. A `share` of a budget is drawn as a meter."""

    title: str
    value: str
    note: str
    simulated: bool = False
    wide: bool = False
    share: float | None = None


@dataclass(frozen=True)
class Cards:
    """Cards side by side."""

    kind: ClassVar = "cards"

    cards: Sequence[Card]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of plain texts with a caption.

    Attributes:
        rows: Texts; the second line of a cell, after a line break, is shown smaller.
        prose: Cells hold sentences, which are broken into lines and begin at the left.
    """

    kind: ClassVar = "table"

    caption: str = ""
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    prose: bool = False


@dataclass(frozen=True, kw_only=True)
class LegendEntry:
    """An entry of a plot's legend: a line, or a shade of a map with a `depth` in [0, 1].

    Attributes:
        colour: One of `parley.presentation.plots.Palette`.
    """

    name: str
    colour: str = "#0b6b66"
    width: float = 6.0
    dash: tuple[int, ...] = ()
    depth: float | None = None
    charged: bool = False


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A heading, its finding in one sentence, a plot (inline SVG), and the same data as a table.

    Attributes:
        data: None if the page has the data in another table.
    """

    title: str
    finding: str
    data: Table | None
    plot: str = ""
    keys: Sequence[LegendEntry] = ()
    simulated: bool = False


@dataclass(frozen=True)
class Figures:
    """Figures side by side: three per row on paper, two if they are a `pair`, one if `whole`."""

    kind: ClassVar = "figures"

    figures: Sequence[Figure]
    layout: Literal["", "pair", "whole"] = ""


Part = Text | Heading | Items | Facts | Code | Picture | Cards | Table | Figures
"""Content of a section."""


@dataclass(frozen=True)
class Section:
    """Parts under a title; an empty title continues the section above."""

    title: str
    parts: Sequence[Part]
    simulated: bool = False

    @property
    def line(self) -> str:
        """The brief facts in one line."""
        return "; ".join(part.line for part in self.parts if isinstance(part, Facts))


@dataclass(frozen=True)
class StatusLine:
    """A sentence on how something ended, and whether that is as it should be."""

    text: str
    good: bool = False
    simulated: bool = False


@dataclass(frozen=True, kw_only=True)
class Document:
    """A page.

    Attributes:
        overline: What kind of page it is, and its name.
        lede: First paragraph.
        statuses: How what the page shows ended.
        notices: Warnings about the whole page.
        cards: Most important figures.
        sheet: The page is one sheet of paper with narrow margins.
    """

    headline: str
    overline: str = ""
    lede: str = ""
    statuses: Sequence[StatusLine] = ()
    notices: Sequence[str] = ()
    cards: Sequence[Card] = ()
    sections: Sequence[Section] = ()
    footer: str = ""
    sheet: bool = False


def build_section(title: str, *parts: Part | None, simulated: bool = False) -> Section:
    """Return a section of the parts that are there."""
    return Section(title, tuple(part for part in parts if part is not None), simulated=simulated)


def build_text_section(title: str, text: str) -> Section:
    """Return a section of one value without a name; without parts if the text is empty."""
    return build_fact_section(title, (Fact("", text),) if text else ())


def build_fact_section(title: str, facts: Sequence[Fact]) -> Section:
    """Return a section of facts; without parts if there are none."""
    return Section(title, (Facts(facts),) if facts else ())


def drop_empty(sections: Iterable[Section]) -> list[Section]:
    """Return the sections that have parts."""
    return [section for section in sections if section.parts]
