"""What the report's page is put together from, and how its templates set text.

Templates escape every value by themselves (Jinja2's autoescape); a filter here escapes first and
then marks up what its own patterns find. A name that a template doesn't know is an error, never
an empty place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from parley.report.plots import Bars, Curve, Level, Palette
from parley.safe_io.file_writing import write_file
from parley.safe_io.printable_text import escape_unprintable
from parley.server.records.number_format import format_power

NOTHING = Markup("")
"""No plot: words and a table are enough."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A figure at the page's head; `share` of a budget is drawn as a meter."""

    title: str
    value: str
    note: str
    simulated: bool = False
    wide: bool = False
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Plain texts under a caption."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class LegendEntry:
    """An entry of a plot's key: a line, or with a `depth` in [0, 1] a shade of a map."""

    name: str
    colour: Palette = Palette.ACCENT
    width: float = 6.0
    dash: tuple[int, ...] = ()
    depth: float | None = None
    charged: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A heading, what it shows in a sentence, a plot (inline SVG) and the same as a table."""

    title: str
    finding: str
    data: ReportTable
    plot: Markup = NOTHING
    keys: Sequence[LegendEntry] = ()
    simulated: bool = False

    @classmethod
    def from_plot(
        cls, title: str, finding: str, plot: Callable[..., Markup], data: ReportTable, **more: Any
    ) -> ReportFigure:
        """A figure whose plot has its title, and what it shows as its description."""
        shown = plot(title=title, description=finding)
        return cls(title=title, finding=finding, plot=shown, data=data, **more)


def build_legend(
    entries: Sequence[Curve | Level | Bars], charged: str = ""
) -> tuple[LegendEntry, ...]:
    """The key of a plot, in order; the entry named `charged` stands out."""
    return tuple(
        LegendEntry(name=entry.name, colour=entry.colour, charged=entry.name == charged)
        if isinstance(entry, Bars)
        else LegendEntry(
            name=entry.name,
            colour=entry.colour,
            width=entry.width,
            dash=entry.dash,
            charged=entry.name == charged,
        )
        for entry in entries
    )


_SMALL = r"(?<![\w.])(?:\d(?:\.\d+)?e[-+]\d+|0\.000\d+)(?!\w)"
"""A number that is set as a power of ten: 1e-05, 0.00015."""


def _format_power(match: re.Match[str]) -> str:
    return format_power(*f"{Decimal(match[0]).normalize():e}".split("e"))


def format_text(value: object) -> Markup:
    """Escaped text; "ε = 2" stays on one line, 1e-05 is a power.

    >>> format_text("<b> δ = 1e-05")
    Markup('&lt;b&gt; δ\xa0=\xa010⁻⁵')
    """
    # Whatever came, the patterns see it escaped: what they add is all the markup there is.
    safe = str(escape(str(value)))
    safe = re.sub(_SMALL, _format_power, safe)
    return Markup(re.sub(r"([εδσρbqC]′?) (=|≈) ", "\\1\u00a0\\2\u00a0", safe))  # noqa: S704


def format_prose(value: object) -> Markup:
    """`format_text`; commands between backticks are set as code, e^ε and 2^32 as powers.

    >>> format_prose("`parley plan` at e^ε < 2^−3")
    Markup('<code>parley plan</code> at e<sup>ε</sup> &lt; 2<sup>−3</sup>')
    """
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(format_text(value)))
    return Markup(re.sub(r"\b([e2])\^(ε|b\b|−?\d+)", r"\1<sup>\2</sup>", marked))  # noqa: S704


def format_unbroken(value: object) -> Markup:
    """`format_text` in which short names with a hyphen, such as a data set's, stay on one line."""
    names = r"(?<!\S)([^\s;&]{1,20}-[^\s;&]{1,20})(?!\S)"
    return Markup(re.sub(names, r'<span class="one">\1</span>', str(format_text(value))))  # noqa: S704


def _format_fact_name(name: str) -> str:
    """A fact's name as a heading: "scale σ =" is "Scale σ"."""
    first = name[:1].upper() if name[:1].isascii() else name[:1]
    return f"{first}{name[1:]}".removesuffix(" =")


_FILTERS: dict[str, Callable[[Any], str]] = {
    "text": format_text,
    "prose": format_prose,
    "unbroken": format_unbroken,
    "name_of_fact": _format_fact_name,
}


def write_page(
    target: Path, template: str, *, package: str = "parley.report", **names: Any
) -> Path:
    """Fills a template and writes the page, whole or not at all; its path.

    Raises:
        OSError: it can't be written.
    """
    page = build_environment(package).get_template(template).render(names)
    # A file's text may be a stranger's: what would turn letters around is shown as its number.
    write_file(target, escape_unprintable(page))
    return target


@functools.cache
def build_environment(package: str) -> Environment:
    """A package's templates and these here, with every value escaped and every name known.

    It keeps the templates that it has compiled.
    """
    own = dict.fromkeys((package, "parley.report"))
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in own]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name, made_of in _FILTERS.items():
        made.filters[name] = made_of
    made.globals["palette"] = Palette
    return made
