"""Build the SVG drawings of the pages: one style, for light and for dark screens."""

from __future__ import annotations

from html import escape

_STYLE = """
text { font-family: ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1b1f24; }
.name { font-size: 17px; font-weight: 600; } .small { font-size: 14.5px; fill: #5d656e; }
.mid { text-anchor: middle; } .end { text-anchor: end; }
.paper { fill: #fdfdfc; } .box { fill: #f3f5f4; stroke: #c3c9ce; }
.charged { fill: #e6f1f0; stroke: #0b6b66; stroke-width: 1.75; } .inner { fill: #fdfdfc; }
.refused { fill: #f7e9e2; stroke: #b2541f; stroke-width: 1.75; } .refusal { fill: #b2541f; }
.line { fill: none; stroke: #0b6b66; stroke-width: 2; } .head { fill: #0b6b66; }
.faint { fill: none; stroke: #98a1aa; stroke-width: 1.5; stroke-dasharray: 5 4; }
.faint-head { fill: #98a1aa; } .axis { fill: none; stroke: #c3c9ce; }
@media (prefers-color-scheme: dark) {
  text { fill: #e7e9eb; } .small { fill: #9aa3ac; } .paper { fill: #14171a; }
  .box { fill: #1c2024; stroke: #4a525a; } .charged { fill: #14302e; stroke: #5cc5bb; }
  .inner { fill: #14171a; } .refused { fill: #3a2419; stroke: #e39a63; }
  .refusal { fill: #e39a63; } .line { stroke: #5cc5bb; } .head { fill: #5cc5bb; }
  .faint { stroke: #77818b; } .faint-head { fill: #77818b; } .axis { stroke: #4a525a; }
}
"""


def build_drawing(width: int, height: int, label: str, body: list[str]) -> str:
    """Return an SVG file with a background, the common style and a label for screen readers."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(label)}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *body,
            "</svg>\n",
        ]
    )


def format_text(x: float, y: float, text: str, kind: str = "small") -> str:
    """Return a line of text at (x, y)."""
    return f'<text class="{kind}" x="{x:.4g}" y="{y:.4g}">{escape(text)}</text>'


def format_box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """Return a box with its upper left corner at (x, y)."""
    place = f'x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}"'
    return f'<rect class="{kind}" {place} rx="8"/>'


def format_arrow(points: list[tuple[float, float]], *, faint: bool = False) -> str:
    """Return a line through `points` with a head at its end. The last part is straight."""
    (x0, y0), (x1, y1) = points[-2:]
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    base = (x1 - 10 * dx, y1 - 10 * dy)
    head = [(x1, y1), (base[0] - 5 * dy, base[1] + 5 * dx), (base[0] + 5 * dy, base[1] - 5 * dx)]
    path = " ".join(f"{x:.4g},{y:.4g}" for x, y in [*points[:-1], base])
    corners = " ".join(f"{x:.4g},{y:.4g}" for x, y in head)
    kinds = ("faint", "faint-head") if faint else ("line", "head")
    return (
        f'<polyline class="{kinds[0]}" points="{path}"/>'
        f'<polygon class="{kinds[1]}" points="{corners}"/>'
    )
