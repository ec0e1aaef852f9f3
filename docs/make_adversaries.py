"""Draw the nested attackers of the threat model: `python docs/make_adversaries.py`.

Writes `docs/adversaries.svg`. Each box holds the boxes of weaker attackers, because a stronger
attacker sees all that they see.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

WIDTH, INSET, LINE, HEAD = 640, 16, 22, 30

ATTACKERS = (
    ("Server and all other parties", "all-others", "subtracts every share but one", "ε is printed"),
    (
        "Server and c colluding parties",
        "server-and-colluders",
        "subtracts the colluders' shares",
        "ε is charged",
    ),
    ("Readers of the models", "readers", "subtract no share", "ε is printed"),
)
"""Title, name in a run's accounts, what the attacker can remove from the noise, what its ε is for;
from the outermost to the innermost."""

_STYLE = """
text { font-family: ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1b1f24; }
.name { font-size: 17px; font-weight: 600; } .small { font-size: 14.5px; fill: #5d656e; }
.paper { fill: #fdfdfc; } .box { fill: #f3f5f4; stroke: #c3c9ce; }
.charged { fill: #e6f1f0; stroke: #0b6b66; stroke-width: 1.75; } .inner { fill: #fdfdfc; }
@media (prefers-color-scheme: dark) {
  text { fill: #e7e9eb; } .small { fill: #9aa3ac; } .paper { fill: #14171a; }
  .box { fill: #1c2024; stroke: #4a525a; } .charged { fill: #14302e; stroke: #5cc5bb; }
  .inner { fill: #14171a; }
}
"""


def format_lines(attacker: tuple[str, str, str, str], x: int, y: int) -> list[str]:
    """Return an attacker's two lines of text, with their upper left corner at (x, y)."""
    title, account, removes, meaning = attacker
    second = f"{account}: {removes}; {meaning}"
    return [
        f'<text class="name" x="{x}" y="{y}">{escape(title)}</text>',
        f'<text class="small" x="{x}" y="{y + LINE}">{escape(second)}</text>',
    ]


def build_svg() -> str:
    """Return the drawing: one box per attacker, each inside the one before it."""
    step = HEAD + LINE + INSET
    height = step * len(ATTACKERS) + INSET * len(ATTACKERS)
    body = []
    for depth, attacker in enumerate(ATTACKERS):
        x, y = INSET * depth + 1, step * depth + 1
        size = f'width="{WIDTH - 2 * x}" height="{height - y - INSET * depth - 1}"'
        kind = ("box", "charged", "inner box")[depth]
        body.append(f'<rect class="{kind}" x="{x}" y="{y}" {size} rx="8"/>')
        body += format_lines(attacker, x + INSET, y + HEAD)
    label = "Three nested attackers and what each can remove from the noise"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-label="{label}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            *body,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("adversaries.svg").write_text(build_svg(), encoding="utf-8")
