"""Define the parts of a report page, and the text filters of its templates.

Jinja2's autoescape escapes every value in the templates. A filter here escapes first, and then adds
markup for its own patterns. A name that a template does not define is an error, never an empty
place.
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
"""No plot: the text and the table are enough."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A figure at the head of the page. A `share` of a budget is drawn as a meter."""

    title: str
    value: str
    note: str
    simulated: bool = False
    wide: bool = False
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of plain texts with a caption."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class LegendEntry:
    """An entry of a plot's legend: a line, or a shade of a map with a `depth` in [0, 1]."""

    name: str
    colour: Palette = Palette.ACCENT
    width: float = 6.0
    dash: tuple[int, ...] = ()
    depth: float | None = None
    charged: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A heading, its finding in one sentence, a plot (inline SVG), and the same data as a table."""

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
        """Build a figure whose plot has its title, and the finding as its description."""
        shown = plot(title=title, description=finding)
        return cls(title=title, finding=finding, plot=shown, data=data, **more)


def build_legend(
    entries: Sequence[Curve | Level | Bars], charged: str = ""
) -> tuple[LegendEntry, ...]:
    """Return the legend of a plot, in order. The entry named `charged` is emphasised."""
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
"""A number that is shown as a power of ten, such as 1e-05 or 0.00015."""


def _format_power(match: re.Match[str]) -> str:
    return format_power(*f"{Decimal(match[0]).normalize():e}".split("e"))


def format_text(value: object) -> Markup:
    """Return escaped text, with "ε = 2" on one line and 1e-05 as a power.

    >>> format_text("<b> δ = 1e-05")
    Markup('&lt;b&gt; δ\xa0=\xa010⁻⁵')
    """
    # Escape first, so that the only markup is what these patterns add.
    safe = str(escape(str(value)))
    safe = re.sub(_SMALL, _format_power, safe)
    return Markup(re.sub(r"([εδσρbqC]′?) (=|≈) ", "\\1\u00a0\\2\u00a0", safe))  # noqa: S704


def format_prose(value: object) -> Markup:
    """Return `format_text` with commands in backticks as code, and e^ε and 2^32 as powers.

    >>> format_prose("`parley plan` at e^ε < 2^−3")
    Markup('<code>parley plan</code> at e<sup>ε</sup> &lt; 2<sup>−3</sup>')
    """
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(format_text(value)))
    return Markup(re.sub(r"\b([e2])\^(ε|b\b|−?\d+)", r"\1<sup>\2</sup>", marked))  # noqa: S704


def format_unbroken(value: object) -> Markup:
    """Return `format_text` with short hyphenated names, such as a data set's, on one line."""
    names = r"(?<!\S)([^\s;&]{1,20}-[^\s;&]{1,20})(?!\S)"
    return Markup(re.sub(names, r'<span class="one">\1</span>', str(format_text(value))))  # noqa: S704


def _format_fact_name(name: str) -> str:
    """Return a fact's name as a heading: "scale σ =" becomes "Scale σ"."""
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
    """Fill a template, write the page completely or not at all, and return its path.

    Raises:
        OSError: the page cannot be written.
    """
    page = build_environment(package).get_template(template).render(names)
    # A file's text may be untrusted, so show direction-changing characters as their numbers.
    write_file(target, escape_unprintable(page))
    return target


@functools.cache
def build_environment(package: str) -> Environment:
    """Return an environment for a package's templates and the report's, with strict escaping and
    names.

    It caches the compiled templates.
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
