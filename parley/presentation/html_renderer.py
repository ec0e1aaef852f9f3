"""Render documents as self-contained HTML pages, with one template for all kinds of pages.

A page has no script and makes no network request: its content-security policy forbids both.
Jinja2's autoescape escapes every value in the templates. A filter here escapes first, and then adds
markup for its own patterns. A name that a template does not define is an error, never an empty
place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from parley.presentation.document import Document
from parley.safe_io.file_writing import write_file
from parley.safe_io.printable_text import escape_unprintable
from parley.server.statements.number_format import format_power

_SMALL = r"(?<![\w.])(?:\d(?:\.\d+)?e[-+]\d+|0\.000\d+)(?!\w)"
"""A number that is shown as a power of ten, such as 1e-05 or 0.00015."""


def _format_power(match: re.Match[str]) -> str:
    return format_power(*f"{Decimal(match[0]).normalize():e}".split("e"))


def format_text(value: object) -> Markup:
    """Return escaped text, with "ε = 2" and "5 %" on one line and 1e-05 as a power.

    >>> format_text("<b> δ = 1e-05")
    Markup('&lt;b&gt; δ\xa0=\xa010⁻⁵')
    """
    # Escape first, so that the only markup is what these patterns add.
    safe = str(escape(str(value)))
    safe = re.sub(_SMALL, _format_power, safe)
    safe = re.sub(r"(?<=\d) (?=%|(?:[nµm]?s|[kMGT]i?B)\b)", "\u00a0", safe)
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


def _format_cell(text: str) -> Markup:
    """Return a cell's first line, and the others in small letters. Indentation is kept. A negative
    number has a minus.
    """
    first, *others = text.split("\n")
    first = re.sub(r"^-(?=\d[\d.,]*$)", "−", first)
    shown = Markup('<span class="in">{}</span>') if first.startswith("  ") else Markup("{}")
    small = Markup('<span class="ends">{}</span>')
    return Markup("").join(
        [shown.format(format_text(first)), *(small.format(format_text(each)) for each in others)]
    )


_FILTERS: dict[str, Callable[[Any], str]] = {
    "text": format_text,
    "cell": _format_cell,
    "prose": format_prose,
    "unbroken": format_unbroken,
    "name_of_fact": _format_fact_name,
}


def render_html(document: Document) -> str:
    """Return a document as a page."""
    page = build_environment().get_template("document.html.j2").render(document=document)
    # A file's text may be untrusted, so show direction-changing characters as their numbers.
    return escape_unprintable(page)


def write_html(document: Document, target: Path) -> Path:
    """Write a document's page completely or not at all, and return its path.

    Raises:
        OSError: the page cannot be written.
    """
    write_file(target, render_html(document))
    return target


@functools.cache
def build_environment() -> Environment:
    """Return the templates' environment, with strict escaping and names."""
    environment = Environment(
        loader=PackageLoader("parley.presentation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    return environment
