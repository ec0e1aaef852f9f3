"""A report's figures as PNG, each whole by itself: for places that keep no pages."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

import vl_convert

from parley.report.figures import figures
from parley.report.parts import Figure, Key
from parley.report.plots import Palette
from parley.server.records.reading import read_run

_WIDTH, _EDGE, _LINE = 424, 20, 18
_LETTERS = 62
"""Letters of a line in a plot's width, at 13 px."""
_RAISED = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")


def figure_pngs(run_dir: Path) -> Mapping[str, bytes]:
    """The figures of a run's report by name, such as `loss-by-round`, in the light scheme.

    Each has its title, the mark *simulation only* where it is due, what it shows and its key.

    Raises:
        RunFolderError: the folder doesn't hold a run.
    """
    drawn = [each for each in figures(read_run(run_dir)) if each.plot]
    return {_name(each.title): _png(each) for each in drawn}


def _name(title: str) -> str:
    """`ε by round` is `epsilon-by-round`: a name of letters that a file may have anywhere."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower().replace("ε", "epsilon")))


def _png(figure: Figure) -> bytes:
    marked = " (simulation only)" if figure.simulated else ""
    down, parts = _EDGE + _LINE // 2, []
    parts.append(_text(0, down, figure.title + marked, colour=Palette.INK, bold=True))
    for line in textwrap.wrap(figure.finding.replace(" = ", "\u00a0=\u00a0"), _LETTERS):
        down += _LINE
        parts.append(_text(0, down, line, colour=Palette.MUTED))
    down += _LINE // 2
    for key in figure.keys:
        down += _LINE
        parts += [_stroke(key, down), _text(32, down, key.name, colour=Palette.INK)]
    plot = str(figure.plot)  # markup would escape what is put into it
    box = plot.split('viewBox="', 1)[1].split('"', 1)[0]
    high = _WIDTH * float(box.split()[3]) / float(box.split()[2])
    down += _LINE
    placed = f'<svg x="{_EDGE}" y="{down}" width="{_WIDTH}" height="{high:g}" '
    parts.append(plot.replace("<svg ", placed, 1))
    size = _WIDTH + 2 * _EDGE, round(down + high + _EDGE)
    whole = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        'font-family="sans-serif"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>"
    )
    return bytes(vl_convert.svg_to_png(whole, scale=2))


def _text(right: int, down: int, said: str, *, colour: Palette, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{_EDGE + right}" y="{down}" font-size="13" fill="{colour}"{weight}>'
        f"{_RAISED.sub(_raised, html.escape(said))}</text>"
    )


def _raised(found: re.Match[str]) -> str:
    """Superscripts are raised figures here: the renderer's own font has few of them."""
    plain = found[0].translate(_PLAIN)
    return f'<tspan baseline-shift="super" font-size="9">{plain}</tspan>'


def _stroke(key: Key, down: int) -> str:
    dash = f' stroke-dasharray="{" ".join(map(str, key.dash))}"' if key.dash else ""
    depth = "" if key.depth is None else f' stroke-opacity="{key.depth:g}"'
    return (
        f'<path d="M{_EDGE} {down - 4}h24" stroke="{key.colour}" stroke-width="{key.width:g}"'
        f"{dash}{depth}/>"
    )
