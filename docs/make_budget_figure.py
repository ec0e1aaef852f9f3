"""Draw how several jobs add up in one budget: `python docs/make_budget_figure.py`.

Writes `docs/budget.svg`. Each bar is the ε of all jobs so far, by the account of Gaussian noise:
squares of μ add up, so each further job adds less than its own ε.
"""

from __future__ import annotations

import math
from pathlib import Path

from svg_drawing import build_drawing, format_box, format_text

from parley.privacy.accounting.gaussian_curve import compute_gaussian_epsilon
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu

EPSILON, DELTA, BUDGET = 1.0, 1e-5, 3.0
"""ε of one job, δ, and the data set's budget."""

JOBS = 8
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 455, 380, 44, 316, 52
_HIGHEST = 4.0
"""Largest ε on the vertical axis."""


def compute_totals(jobs: int) -> list[float]:
    """Return the ε of the first 1, 2, … jobs together."""
    mu = compute_gaussian_mu(EPSILON, DELTA)
    return [compute_gaussian_epsilon(mu * math.sqrt(count), DELTA) for count in range(1, jobs + 1)]


def build_svg() -> str:
    """Return the drawing: a bar per number of jobs, the budget, and the plain sum."""
    totals = compute_totals(JOBS)
    step = (WIDTH - LEFT - 16) / JOBS
    unit = (BOTTOM - TOP) / _HIGHEST

    def place(epsilon: float) -> float:
        return BOTTOM - unit * epsilon

    body = [format_text(16, 28, "ε of all jobs together", "name")]
    for epsilon in range(int(_HIGHEST) + 1):
        body.append(format_text(LEFT - 12, place(epsilon) + 5, str(epsilon), "small end"))
    before = 0.0
    for at, total in enumerate(totals):
        x, fits = LEFT + step * at + 3, total <= BUDGET
        kind = "charged" if fits else "refused"
        if before:
            body.append(format_box(x, place(before), step - 6, unit * before, "box"))
        body.append(format_box(x, place(total), step - 6, unit * (total - before), kind))
        middle, word = x + (step - 6) / 2, f"{math.ceil(100 * total - 1e-6) / 100:.2f}"
        body.append(format_text(middle, place(before or total) + 20, word, "small mid"))
        body.append(format_text(middle, BOTTOM + 22, str(at + 1), "small mid"))
        before = total
    body.append(format_text(LEFT + step * JOBS / 2, BOTTOM + 46, "jobs of ε = 1", "small mid"))
    # The plain sum leaves the picture after four jobs.
    plain = " ".join(
        f"{LEFT + step * (at + 0.5):.4g},{place(at + 1):.4g}" for at in range(int(_HIGHEST))
    )
    body.append(f'<polyline class="faint" points="{plain}"/>')
    x, y = LEFT + step * (_HIGHEST - 0.5) + 10, place(_HIGHEST) + 5
    body.append(format_text(x, y, "if costs simply added up"))
    y = place(BUDGET)
    body.append(f'<polyline class="line" points="{LEFT},{y:.4g} {WIDTH - 16},{y:.4g}"/>')
    body.append(format_text(LEFT + 6, y - 8, "budget: ε = 3"))
    body.append(format_text(WIDTH - 20, place(totals[-1]) - 8, "refused", "small end refusal"))
    fitting = sum(total <= BUDGET for total in totals)
    label = (
        f"Bars of the ε of 1 to {JOBS} jobs of ε = 1 together: "
        f"{', '.join(f'{total:.2f}' for total in totals)}. {fitting} jobs fit into a budget of 3."
    )
    return build_drawing(WIDTH, HEIGHT, label, body)


if __name__ == "__main__":
    Path(__file__).with_name("budget.svg").write_text(build_svg(), encoding="utf-8")
