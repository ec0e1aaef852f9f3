"""Draw the nested attackers of the threat model: `python docs/make_adversaries.py`.

Writes `docs/adversaries.svg`. Each box holds the boxes of weaker attackers, because a stronger
attacker sees all that they see.
"""

from __future__ import annotations

from pathlib import Path

from svg_drawing import build_drawing, format_box, format_text

WIDTH, INSET, LINE, HEAD = 450, 16, 21, 30

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


def build_svg() -> str:
    """Return the drawing: one box per attacker, each inside the one before it."""
    step = HEAD + 2 * LINE + INSET
    height = step * len(ATTACKERS) + INSET * len(ATTACKERS)
    body = []
    for depth, (title, account, removes, meaning) in enumerate(ATTACKERS):
        x, y = INSET * depth + 1, step * depth + 1
        kind = ("box", "charged", "inner box")[depth]
        body += [
            format_box(x, y, WIDTH - 2 * x, height - y - INSET * depth - 1, kind),
            format_text(x + INSET, y + HEAD, title, "name"),
            format_text(x + INSET, y + HEAD + LINE, f"{account}: {meaning}"),
            format_text(x + INSET, y + HEAD + 2 * LINE, removes),
        ]
    label = "Three nested attackers and what each can remove from the noise"
    return build_drawing(WIDTH, height, label, body)


if __name__ == "__main__":
    Path(__file__).with_name("adversaries.svg").write_text(build_svg(), encoding="utf-8")
