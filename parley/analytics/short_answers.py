"""Answers in at most 15 lines of 80 columns: values with their noise, what they cost, what is left.

A cell that does not fit is in its CSV and on the session's page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.analytics.answer import ENDS, UNIT_LIMITS, count_rows, format_rows, format_to_width
from parley.analytics.answer_intervals import Intervals
from parley.client.queries.base import Table
from parley.presentation import short_layout
from parley.presentation.short_layout import MAX_LINES, WIDTH, Row
from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.rounding import format_exact, format_rounded_down, format_rounded_up
from parley.privacy.accounting.threat_model import Adversary, Unit
from parley.safe_io.printable_text import to_one_line
from parley.server.statements.guarantee_text import FIXED_RELEASES_NOTE

_TITLE_WIDTH = 20
_SEPARATOR = "   "
_ASYMMETRY = 0.02
"""Share of an interval's width by which its value may be off its middle and ± still be used."""


def list_answer_lines(answers: Sequence[dict[str, Any]], folder: str | Path) -> list[str]:
    """Return the lines of a session's answers.

    Args:
        answers: `Answer.to_json` values.
    """
    rows = short_layout.format_rows(_list_rows(answers[-1], folder))
    room = max(2, MAX_LINES - len(rows))
    shown = answers if len(answers) <= room else answers[: room - 1]
    lines = [line for each in shown for line in _format_answer(each, room // len(shown))]
    if len(shown) < len(answers):
        lines.append(f"… and {len(answers) - len(shown)} more answers (-v prints all)")
    return [*map(to_one_line, lines), *rows]


def _list_rows(last: dict[str, Any], folder: str | Path) -> list[Row]:
    """Return what all answers together cost, and where they are."""
    budget = last["budget"]
    scope = f"per {Unit(budget['unit'])} ({budget['neighbouring']})"
    holds = AccountCertificate(budget.get("certificate", AccountCertificate.LOWEST_BOUND))
    spent, left = format_rounded_up(last["spent"]), format_rounded_down(last["left"])
    intervals = Intervals(simultaneous=last["simultaneous"], sampling=last["sampling"])
    total = f"ε = {format_exact(budget['epsilon'])}, δ = {format_exact(budget['delta'])}"
    return [
        Row("Privacy", f"{total} for all, {scope}, {holds.description}"),
        Row("Spent", f"ε = {spent} {FIXED_RELEASES_NOTE}; {left} left"),
        Row("Protects", f"against {Adversary(last['against']).short}", rank=2),
        Row("Assuming", "; ".join(last["assumptions"])),
        Row("", UNIT_LIMITS.get(Unit(budget["unit"]), ""), rank=3),
        Row("Noise", "drawn from a seed: it protects nobody" if last["seeded"] else ""),
        Row("Saved", str(folder), whole=True),
        Row("", f"±: {intervals}; tables/ has every cell", rank=1),
    ]


def _format_answer(answer: dict[str, Any], max_lines: int) -> list[str]:
    """Return an answer's title, cells and price in at most so many lines."""
    title, price = str(answer["title"]), f"ε {format_rounded_up(answer['epsilon'])}"
    alone = len(title) >= _TITLE_WIDTH and max_lines > 1
    if len(title) >= _TITLE_WIDTH and not alone:
        title = f"{title[: _TITLE_WIDTH - 2]}…"
    indent = f"{'' if alone else title:<{_TITLE_WIDTH}}"
    room, table = WIDTH - _TITLE_WIDTH - len(price) - 2, answer["table"]
    max_cells = _compute_max_cells(room, max_lines - alone)
    body = _wrap_cells(
        _format_cells(table, max_cells), room, max_lines - alone, total=count_rows(table)
    )
    lines = [f"{'' if at else indent:<{_TITLE_WIDTH}}{line}" for at, line in enumerate(body)]
    lines[-1] = f"{lines[-1]:<{WIDTH - len(price)}}{price}"
    return [*([title[:WIDTH]] if alone else []), *lines]


def _compute_max_cells(width: int, max_lines: int) -> int:
    """Return an upper bound on the cells that fit: each has a character and a separator.

    >>> _compute_max_cells(9, 2), _wrap_cells(list("abcdef"), 9, 2, total=6)
    (6, ['a   b   c', 'd   e   f'])
    """
    return max_lines * ((width + len(_SEPARATOR)) // (1 + len(_SEPARATOR)))


def _wrap_cells(cells: Sequence[str], width: int, max_lines: int, *, total: int) -> list[str]:
    """Return lines of whole cells; the last one counts the other cells of `total`.

    >>> _wrap_cells(["a 1 ±2", "b 3 ±4", "c 5 ±6"], 20, 1, total=3)
    ['a 1 ±2   … 2 more']
    """
    for shown in range(len(cells), 0, -1):
        rest = total - shown
        lines = [""]
        for cell in [*cells[:shown], *([f"… {rest} more"] if rest else [])]:
            joined = f"{lines[-1]}{_SEPARATOR}{cell}" if lines[-1] else cell
            if len(joined) > width and lines[-1]:
                lines.append(cell)
            else:
                lines[-1] = joined
        if len(lines) <= max_lines or shown == 1:
            return [line[:width] for line in lines[:max_lines]]
    return [""]


def _format_cells(table: Table, max_cells: int) -> list[str]:
    """Return key, value and noise of the first `max_cells` cells."""
    # A server writes null for a cell that has no value.
    table = {
        name: [math.nan if cell is None and name in ENDS else cell for cell in cells]
        for name, cells in table.items()
    }
    names = [name for name in table if name not in ENDS]
    cells = []
    for at, row in enumerate(format_rows(table, max_cells)):
        key, shown = _join_key(names, row), row[len(names) :]
        value = _format_value(table, at, shown) if len(shown) == 3 else " ".join(shown)
        cells.append(f"{key} {value}".strip())
    return cells


def _join_key(names: Sequence[str], row: Sequence[str]) -> str:
    """Return a cell's key; two columns "from" and "to" become one interval.

    >>> _join_key(["ward", "age from", "age to"], ["a", "0", "18", "67"])
    'a 0–18'
    """
    parts = [
        f"–{cell}" if name.endswith(" to") else f" {cell}"
        for name, cell in zip(names, row, strict=False)
    ]
    return "".join(parts).strip()


def _format_value(table: Table, at: int, shown: Sequence[str]) -> str:
    value, low, high = (float(table[end][at]) for end in ENDS)
    width = high - low
    if not (math.isfinite(width) and math.isfinite(value)):
        return shown[0]
    if abs(high + low - 2 * value) > 2 * _ASYMMETRY * width:
        return f"{shown[0]} ({shown[1]} to {shown[2]})"
    return f"{shown[0]} ±{format_to_width(width / 2, width)}"
