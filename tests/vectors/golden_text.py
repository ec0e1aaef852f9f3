"""What golden texts are made of: what `parley` prints, pages' text, and placeholders.

A placeholder stands for whatever is not the same again; everything else stays.
"""

from __future__ import annotations

import io
import logging
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path

from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

# Sums in another order are other sums: what is loaded later has one thread, too.
os.environ["OMP_NUM_THREADS"] = "1"

from parley.cli import app
from parley.version import __version__

Sections = dict[str, str]

_CHECKOUT = Path(__file__).parents[2]

_TIME = r"(\d[\d.,]* × )?\d[\d.,]*(e[-+]?\d+|[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)? (µs|ms|s|min|h)\b"
_CHANGING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00| UTC)?", "DATE"),
    (r"\b[0-9a-f]{64,}\b", "DIGEST"),
    (r"-[0-9a-f]{16}\b", "-ID"),
    (rf"{_TIME}( {_TIME})*", "TIME"),
    (r"\d[\d.,]* (MiB|GiB)\b", "MEMORY"),
    (r"\d[\d.,]* worlds a second", "RATE"),
    (r"^(seconds[ |]+).*", r"\1TIME"),
    (r"\b" + re.escape(__version__) + r"\b", "VERSION"),
    (r" {2,}|\t", "  "),  # how far apart columns stand follows what is in them
    (r" +$", ""),
)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
# A plot's description is its caption; what a page has as it is, a job, has a golden of its own.
_UNSHOWN = {"script", "style", "desc", "pre"}
_LINES = {
    *("title", "h1", "h2", "h3", "p", "li", "div", "section", "figure", "figcaption", "svg"),
    *("table", "caption", "tr", "dt", "summary", "footer"),
}
_CELLS = {"td", "th", "dd", "text"}


def call(*words: object) -> str:
    """What `parley` prints, and logs, or says as it refuses."""
    log = logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(log)
    # As wide as it takes: where a line breaks says nothing.
    with threadpool_limits(1):
        done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    logging.getLogger().removeHandler(log)
    status = f"exit status {done.exit_code}\n" if done.exit_code else ""
    refused = "" if isinstance(done.exception, SystemExit | None) else done.exception
    # A slow machine says that a command still works; no text depends on that.
    printed = re.sub(r"^\d\d:\d\d:\d\d [a-z].*\n", "", done.output, flags=re.MULTILINE)
    said = re.sub(r"^parley \w+ is working \(.*\)\n", "", printed, flags=re.MULTILINE)
    return f"{status}{said}{refused}{log.stream.getvalue()}"


def plain(text: str, folder: Path) -> str:
    """A text with placeholders for times, sizes in memory, digests, names of runs and places."""
    text = text.replace(str(folder), "FOLDER").replace(str(_CHECKOUT), "CHECKOUT")
    for pattern, name in _CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text.strip("\n")


class _Text(HTMLParser):
    """The text of a page: a line for a paragraph or a row of a table, one for a plot."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.said, self._unshown = "", 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._unshown += tag in _UNSHOWN
        self.said += "\n" * (tag in _LINES) + " | " * (tag in _CELLS)

    def handle_endtag(self, tag: str) -> None:
        self._unshown -= tag in _UNSHOWN
        self.said += "\n" * (tag in _LINES - {"dt"})

    def handle_data(self, data: str) -> None:
        if not self._unshown:
            self.said += re.sub(r"\s+", " ", data)


def text_of(page: Path) -> str:
    """What a browser would show of a page, without markup, scripts and style."""
    if not page.exists():
        return "no page"
    lines = _Text(page.read_text(encoding="utf-8")).said.split("\n")
    return "\n".join(line.strip(" |") for line in lines if line.strip(" |"))


def alike(known: str, came: str) -> bool:
    """The same words and whole numbers; decimals may differ where a machine rounds otherwise."""
    numbers = zip(_NUMBER.findall(known), _NUMBER.findall(came), strict=False)
    return _NUMBER.sub("0", known) == _NUMBER.sub("0", came) and all(
        one == other
        or ("." in one + other and math.isclose(_value(one), _value(other), rel_tol=1e-3))
        for one, other in numbers
    )


def _value(number: str) -> float:
    return float(number.replace(",", ""))
