"""A sweep as a table of means: columns for a program, and at most 15 lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parley.server.records.short_layout import MAX_LINES, WIDTH
from parley.sweeps.sweep_results import FIGURES, HALF_WIDTH, Row, summarise_rows

_EPSILON = "privacy.epsilon"
_LABEL_WIDTH, _CELL_WIDTH = 26, 18
_FOOTER_LINES = 4


def build_columns(rows: Sequence[Row], axes: Sequence[str]) -> dict[str, list[Any]]:
    """Return a list per column: the axes, the means with their half-widths, and counts of runs.

    >>> row = {"method": "a", "status": "complete", "epsilon": 1.0, "delta": 0.0, "loss": 0.5}
    >>> build_columns([row], ["method"])
    {'method': ['a'], 'epsilon': [1.0], 'loss': [0.5], 'loss ±95 %': [None], 'runs': [1], \
'failed': [0]}
    """
    cells = summarise_rows(rows, axes)
    names = [name for name in FIGURES if any(cell[name] is not None for cell in cells)]
    shown = ["epsilon", *(each for name in names for each in (name, HALF_WIDTH.format(name)))]
    return {
        **{axis: [cell["values"][axis] for cell in cells] for axis in axes},
        **{name: [cell[name] for cell in cells] for name in (*shown, "runs", "failed")},
    }


def choose_metric(rows: Sequence[Row], metric: str | None = None) -> str:
    """Return the figure that a table shows: the asked one, accuracy, R² or the loss."""
    names = [metric] if metric else ["accuracy", "r2", "loss"]
    known = (name for name in names if any(row.get(name) is not None for row in rows))
    return next(known, names[-1])


def format_table(rows: Sequence[Row], axes: Sequence[str], metric: str) -> list[str]:
    """Return a table of the metric's means with 95 % intervals: ε, if it is swept, from left to
    right, all other axes from top to bottom.
    """
    across = _EPSILON if _EPSILON in axes else axes[-1] if axes else ""
    down = [axis for axis in axes if axis != across]
    cells = {
        (_format_label(cell, down), str(cell["values"].get(across, ""))): cell
        for cell in summarise_rows(rows, axes)
    }
    labels = list(dict.fromkeys(label for label, _ in cells))
    heads = list(dict.fromkeys(head for _, head in cells))
    fits = (WIDTH - _LABEL_WIDTH) // _CELL_WIDTH
    shown_heads = heads[:fits]
    ended = sum(row["status"] != "failed" for row in rows)
    lines = [
        _format_line(
            f"{ended} of {len(rows)} runs", [_format_head(across, head) for head in shown_heads]
        )
    ]
    room = MAX_LINES - _FOOTER_LINES - 2
    kept = labels if len(labels) <= room else labels[: room - 1]
    for label in kept:
        texts = [_format_mean(cells.get((label, head)), metric) for head in shown_heads]
        lines.append(_format_line(label, texts))
    if len(kept) < len(labels):
        lines.append(f"… and {len(labels) - len(kept)} more rows in summary.csv")
    if baseline := _list_baselines(cells, labels, shown_heads, metric):
        lines.append(_format_line("without privacy", baseline))
    if len(shown_heads) < len(heads):
        lines[0] = f"{lines[0]}  …"
    return lines


def _format_head(axis: str, value: str) -> str:
    if not axis:
        return ""
    return f"{'ε' if axis == _EPSILON else axis.rpartition('.')[2]} = {value}"


def _format_line(label: str, texts: Sequence[str]) -> str:
    cells = "".join(f"{text:<{_CELL_WIDTH}}" for text in texts)
    return f"{label[: _LABEL_WIDTH - 1]:<{_LABEL_WIDTH}}{cells}".rstrip()[:WIDTH]


def _format_label(cell: Row, axes: Sequence[str]) -> str:
    return " ".join(str(cell["values"][axis]) for axis in axes) or "all"


def _format_mean(cell: Row | None, metric: str) -> str:
    if cell is None:
        return ""
    if cell.get(metric) is None:
        return "failed"
    half = cell.get(HALF_WIDTH.format(metric))
    return f"{cell[metric]:.3f}" + ("" if half is None else f" ± {half:.3f}")


def _list_baselines(
    cells: dict[tuple[str, str], Row], labels: Sequence[str], heads: Sequence[str], metric: str
) -> list[str]:
    """Return the non-private model's figure per column; empty if it was not measured."""
    found = []
    for head in heads:
        values = [
            cell[f"baseline_{metric}"]
            for label in labels
            if (cell := cells.get((label, head))) and cell.get(f"baseline_{metric}") is not None
        ]
        found.append(f"{values[0]:.3f}" if values else "")
    return found if any(found) else []
