"""A sweep as a table of means: columns for a program, and at most 15 lines for a terminal.

`TableGrid` is the table that terminal and LaTeX show: ε, if it is swept, from left to right, and
all other axes from top to bottom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from parley.presentation.short_layout import MAX_LINES, WIDTH
from parley.privacy.accounting.rounding import format_rounded_up
from parley.server.jobs.section_base import JobError
from parley.sweeps.sweep_summary import FIGURES, HALF_WIDTH, Row, format_cell_label, summarise_rows

EPSILON = "privacy.epsilon"
CHARGED_MORE_MARK = "†"
_CHARGED_MORE = 1e-3
"""Smallest relative excess of a charged ε over its column's that is marked."""

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


def check_metric(metric: str | None) -> None:
    """Raise JobError if there is no such metric."""
    if metric is not None and metric not in FIGURES:
        begins = [name for name in FIGURES if name.startswith(metric)]
        near = begins or get_close_matches(metric, FIGURES, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Expected one of {', '.join(FIGURES)}."
        raise JobError(f"Unknown metric {metric}. {hint}")


def choose_metric(rows: Sequence[Row], metric: str | None = None) -> str:
    """Return the figure that a table shows: the asked one, accuracy, R² or the loss."""
    names = [metric] if metric else ["accuracy", "r2", "loss"]
    known = (name for name in names if any(row.get(name) is not None for row in rows))
    return next(known, names[-1])


@dataclass(frozen=True, kw_only=True)
class TableGrid:
    """A sweep as a table.

    Attributes:
        across: the axis from left to right; empty: there is none.
        down: the axes from top to bottom that have several values.
        labels, heads: names of rows and columns.
        cells: (label, head) → cell.
    """

    across: str
    down: tuple[str, ...]
    labels: tuple[str, ...]
    heads: tuple[str, ...]
    cells: Mapping[tuple[str, str], Row]

    def list_baselines(self, metric: str) -> list[float | None]:
        """Return the non-private model's figure per column, None if its rows have several; empty if
        there is none.
        """
        found = [self._find_baseline(head, f"baseline_{metric}") for head in self.heads]
        return found if any(value is not None for value in found) else []

    @property
    def labelled_axes(self) -> tuple[str, ...]:
        """Axes whose values name the rows; those that name the columns if there is one row."""
        return self.down or tuple(axis for axis in (self.across,) if axis not in ("", EPSILON))

    def is_charged_more(self, cell: Row) -> bool:
        """Return whether a run of the cell was charged more than its column's ε."""
        charged = cell["epsilon"]
        if self.across != EPSILON or charged is None:
            return False
        return bool(charged > float(cell["values"][EPSILON]) * (1 + _CHARGED_MORE))

    def format_charged_more(self) -> str:
        """Return the note on the cells that were charged more; empty if there are none."""
        beyond = [cell["epsilon"] for cell in self.cells.values() if self.is_charged_more(cell)]
        if not beyond:
            return ""
        return f"Charged more than its column's ε, up to {format_rounded_up(max(beyond), 3)}"

    def _find_baseline(self, head: str, name: str) -> float | None:
        cells = [self.cells.get((label, head), {}) for label in self.labels]
        found = {round(cell[name], 12) for cell in cells if cell.get(name) is not None}
        return found.pop() if len(found) == 1 else None


def build_grid(rows: Sequence[Row], axes: Sequence[str]) -> TableGrid:
    """Return the table of all runs."""
    summarised = summarise_rows(rows, axes)
    across = EPSILON if EPSILON in axes else axes[-1] if axes else ""
    down = tuple(
        axis
        for axis in axes
        if axis != across and len({repr(cell["values"][axis]) for cell in summarised}) > 1
    )
    cells = {
        (format_cell_label(cell, down) or "with privacy", str(cell["values"].get(across, ""))): cell
        for cell in summarised
    }
    return TableGrid(
        across=across,
        down=down,
        labels=tuple(dict.fromkeys(label for label, _ in cells)),
        heads=tuple(dict.fromkeys(head for _, head in cells)),
        cells=cells,
    )


def format_table(
    grid: TableGrid, rows: Sequence[Row], metric: str, *, max_lines: int = MAX_LINES - _FOOTER_LINES
) -> list[str]:
    """Return the lines of a table of the metric's means with 95 % intervals, for a terminal."""
    fits = (WIDTH - _LABEL_WIDTH) // _CELL_WIDTH
    heads = grid.heads[:fits]
    ended = sum(row["status"] != "failed" for row in rows)
    shown = [_format_head(grid.across, head) for head in heads]
    lines = [_format_line(f"{ended} of {len(rows)} runs", shown)]
    room = max_lines - 2
    kept = grid.labels if len(grid.labels) <= room else grid.labels[: room - 1]
    for label in kept:
        texts = [_format_mean(grid, grid.cells.get((label, head)), metric) for head in heads]
        lines.append(_format_line(label, texts))
    if len(kept) < len(grid.labels):
        lines.append(f"… and {len(grid.labels) - len(kept)} more rows in results.tex")
    if baselines := grid.list_baselines(metric)[:fits]:
        texts = ["" if value is None else f"{value:.3f}" for value in baselines]
        lines.append(_format_line("without privacy", texts))
    if len(heads) < len(grid.heads):
        lines[0] = f"{lines[0]}  …"
    return lines


def _format_head(axis: str, value: str) -> str:
    if not axis:
        return ""
    return f"{'ε' if axis == EPSILON else axis.rpartition('.')[2]} = {value}"


def _format_line(label: str, texts: Sequence[str]) -> str:
    cells = "".join(f"{text:<{_CELL_WIDTH}}" for text in texts)
    return f"{label[: _LABEL_WIDTH - 1]:<{_LABEL_WIDTH}}{cells}".rstrip()[:WIDTH]


def _format_mean(grid: TableGrid, cell: Row | None, metric: str) -> str:
    if cell is None:
        return ""
    if cell.get(metric) is None:
        return "failed" if cell["failed"] else "–"
    half = cell.get(HALF_WIDTH.format(metric))
    mark = CHARGED_MORE_MARK if grid.is_charged_more(cell) else ""
    return f"{cell[metric]:.3f}" + ("" if half is None else f" ± {half:.3f}") + mark
