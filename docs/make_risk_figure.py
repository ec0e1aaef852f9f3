"""Draw how often an attacker recognises a record, by ε: `python docs/make_risk_figure.py`.

Writes `docs/risk.svg`. Each curve is a group of records. The attacker knows all others, and wrongly
names 5 % of the people who are not in the data. The noise is Gaussian, δ = 10⁻⁵.
"""

from __future__ import annotations

import math
from pathlib import Path

from svg_drawing import build_drawing, format_text

from parley.privacy.accounting.attack_power import compute_gaussian_power
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu

DELTA, FALSE_ALARMS = 1e-5, 0.05
"""δ, and how often the attacker wrongly names someone."""

GROUPS = {1: "one record", 2: "2 together", 5: "5", 10: "10"}
"""Number of records → name of its curve."""

LOWEST, HIGHEST = 0.1, 8.0
"""Ends of the axis of ε."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 390, 62, 132, 56, 322


def compute_rate(epsilon: float, members: int) -> float:
    """Return how often the attacker recognises a group of records, if one record has this ε."""
    mu = compute_gaussian_mu(epsilon, DELTA)
    return compute_gaussian_power(FALSE_ALARMS, mu=members * mu)


def _place(epsilon: float, rate: float) -> tuple[float, float]:
    along = math.log(epsilon / LOWEST) / math.log(HIGHEST / LOWEST)
    return LEFT + along * (WIDTH - LEFT - RIGHT), BOTTOM - rate * (BOTTOM - TOP)


def _draw_line(points: list[tuple[float, float]], kind: str) -> str:
    path = " ".join(f"{x:.4g},{y:.4g}" for x, y in points)
    return f'<polyline class="{kind}" points="{path}"/>'


def build_svg() -> str:
    """Return the drawing: a curve per group, and the rate of pure guessing."""
    body = [format_text(16, 28, "How often an attacker recognises a record, at most", "name")]
    for percent in (0, 25, 50, 75, 100):
        x, y = _place(LOWEST, percent / 100)
        body.append(format_text(x - 12, y + 5, f"{percent} %", "small end"))
    for epsilon in (0.1, 0.2, 0.5, 1, 2, 4, 8):
        body.append(format_text(_place(epsilon, 0)[0], BOTTOM + 24, f"{epsilon:g}", "small mid"))
    middle = (_place(LOWEST, 0)[0] + _place(HIGHEST, 0)[0]) / 2
    body.append(format_text(middle, BOTTOM + 48, "ε (smaller is more private)", "small mid"))
    body.append(_draw_line([_place(LOWEST, 0), _place(HIGHEST, 0)], "axis"))
    body.append(_draw_line([_place(e, FALSE_ALARMS) for e in (LOWEST, HIGHEST)], "faint"))
    x, y = _place(HIGHEST, FALSE_ALARMS)
    body.append(format_text(x + 8, y + 5, "guessing: 5 %"))
    grid = [LOWEST * (HIGHEST / LOWEST) ** (at / 80) for at in range(81)]
    for members, name in GROUPS.items():
        curve = [(epsilon, compute_rate(epsilon, members)) for epsilon in grid]
        body.append(_draw_line([_place(*point) for point in curve], "line"))
        body.append(_write_name(curve, name))
    label = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{math.ceil(1000 * compute_rate(e, k)) / 10:g} % at ε = {e:g}" for e in (0.1, 1, 8)
        )
        for k, name in GROUPS.items()
    )
    return build_drawing(WIDTH, HEIGHT, f"An attacker's rate by ε. {label}.", body)


def _write_name(curve: list[tuple[float, float]], name: str) -> str:
    """Return a curve's name: at its end, or to the left of it at 50 % if it reaches the top."""
    if curve[-1][1] < 0.99:
        x, y = _place(*curve[-1])
        return format_text(x + 8, y + 5, name)
    x, y = _place(*next(point for point in curve if point[1] >= 0.5))
    return format_text(x - 8, y, name, "small end")


if __name__ == "__main__":
    Path(__file__).with_name("risk.svg").write_text(build_svg(), encoding="utf-8")
