"""The pieces of HTML a report is put together from: escaped text, a mark, a table, a figure."""

import html
import re
from collections.abc import Sequence

from parley.report.plots import Bars, Curve, Level, Palette

__all__ = ["SIMULATION_ONLY", "escape", "figure", "key", "prose", "shades", "table"]

SIMULATION_ONLY = '<span class="sim">simulation only</span>'


def escape(text: object) -> str:
    """Text made safe for HTML; "ε = 2" stays on one line.

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return re.sub(r"([εδσρb]) (=|≈) ", "\\1\u00a0\\2\u00a0", html.escape(str(text)))


def prose(text: object) -> str:
    """Escaped text; commands between backticks are set as code, e^ε and 2^32 as powers.

    >>> prose("`parley plan` at e^ε < 2^−3")
    '<code>parley plan</code> at e<sup>ε</sup> &lt; 2<sup>−3</sup>'
    """
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\b([e2])\^(ε|b\b|−?\d+)", r"\1<sup>\2</sup>", marked)


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain texts under a caption."""
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(
    title: str, finding: str, *, plot: str, data: str, keys: str = "", simulated: bool = False
) -> str:
    """A figure: heading, what it shows in a sentence, key, plot, the same as a table."""
    badge = f" {SIMULATION_ONLY}" if simulated else ""
    return (
        f"<figure><figcaption><h3>{escape(title)}{badge}</h3><p>{escape(finding)}</p></figcaption>"
        f"{keys}<div>{plot}<details><summary>As a table</summary>{data}</details></div></figure>\n"
    )


def key(entries: Sequence[Curve | Level | Bars], charged: str = "") -> str:
    """The key of a plot, a swatch an entry, in order; the one named ``charged`` stands out."""
    items = []
    for entry in entries:
        width, dash = (6.0, ()) if isinstance(entry, Bars) else (entry.width, entry.dash)
        pattern = f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""
        swatch = (
            '<svg viewBox="0 0 24 8" aria-hidden="true"><path d="M0 4H24" '
            f'stroke="{Palette(entry.colour)}" stroke-width="{width:g}"{pattern}/></svg>'
        )
        emphasis = ' class="charged"' if entry.name == charged else ""
        items.append(f"<li{emphasis}>{swatch}{escape(entry.name)}</li>")
    return f'<ul class="key">{"".join(items)}</ul>'


def shades(entries: Sequence[tuple[float, str]]) -> str:
    """The key of a map: depths of colour in [0, 1] with what they stand for."""
    items = [
        '<li><svg viewBox="0 0 24 8" aria-hidden="true"><path d="M0 4H24" '
        f'stroke="{Palette.GRID}" stroke-width="8"/><path d="M0 4H24" stroke="{Palette.ACCENT}" '
        f'stroke-width="6" stroke-opacity="{depth:g}"/></svg>{escape(name)}</li>'
        for depth, name in entries
    ]
    return f'<ul class="key">{"".join(items)}</ul>'
