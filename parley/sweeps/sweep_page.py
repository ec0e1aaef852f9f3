"""Build the page of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from parley.presentation.document import (
    Document,
    Figure,
    Figures,
    Items,
    Part,
    Table,
    Text,
    build_section,
)
from parley.privacy.accounting.rounding import format_rounded_up
from parley.server.statements import guarantee_text
from parley.server.statements.number_format import format_epsilon
from parley.sweeps.sweep_plots import SweepFigure
from parley.sweeps.sweep_summary import (
    FIGURES,
    HALF_WIDTH,
    Row,
    compute_total_charge,
    format_scope,
    summarise_rows,
)

_MAX_ERRORS = 20
_ROUNDING = 1e-9
"""Relative half-width below which repetitions are equal except for rounding errors."""


def format_total_cost(rows: Sequence[Row]) -> str:
    """Return what all runs would cost on real records, in a sentence."""
    good = [row for row in rows if row["status"] != "failed"]
    if not good:
        return "No run ended."
    epsilon, delta, by = compute_total_charge(rows)
    return (
        f"On real records all of them together would cost at most ε = {format_epsilon(epsilon)} at "
        f"δ = {format_rounded_up(delta, 3)} ({by} account, {guarantee_text.FIXED_RELEASES_NOTE}; "
        f"{format_scope(good)}). Their noise is seeded: it protects nobody."
    )


def build_sweep_document(
    rows: Sequence[Row], axes: Sequence[str], figures: Sequence[SweepFigure], *, title: str
) -> Document:
    """Build the page of a sweep: its figures, and a table of its cells."""
    errors = [str(row["error"]) for row in rows if row["status"] == "failed"]
    shown = list(dict.fromkeys(errors))[:_MAX_ERRORS]
    failed = f"{len(errors)} failed. " if errors else ""
    drawn = Figures([_build_figure(each) for each in figures], "whole")
    return Document(
        overline="Parley sweep",
        headline=f"Sweep: {title}",
        lede=(
            "Simulation only: every figure here looks at records of all parties, and each would "
            f"be a release, with its price. {len(rows)} runs. {failed}{format_total_cost(rows)}"
        ),
        sections=[
            build_section(
                "Figures", drawn if figures else Text("No axis of numbers: see the table.")
            ),
            build_section("Cells", *_build_cells(rows, axes)),
            *([build_section("What failed", Items(shown))] if shown else []),
        ],
    )


def _build_figure(figure: SweepFigure) -> Figure:
    lacks = f" {figure.failed} failed runs are not in it." if figure.failed else ""
    dashed = "; dashed: not private" if figure.non_private else ""
    finding = f"Means over repetitions with 95 % intervals{dashed}.{lacks}"
    return Figure(title=figure.title, finding=finding, plot=figure.svg, data=None, simulated=True)


def _build_cells(rows: Sequence[Row], axes: Sequence[str]) -> list[Part]:
    """Build the table of the cells. Notes below it state what an ε assumes."""
    cells = summarise_rows(rows, axes)
    assumed = list(dict.fromkeys(cell["assumptions"] for cell in cells if cell["assumptions"]))
    notes = {text: f" [{number}]" for number, text in enumerate(assumed, start=1)}
    columns = [name for name in FIGURES if any(cell[name] is not None for cell in cells)]
    names = [name.replace("_", " ") for name in columns]
    table = Table(
        caption="Means over repetitions, with the half-widths of 95 % intervals",
        head=[*axes, "ε charged", "δ", *names, "runs", ""],
        rows=[
            [
                *map(str, cell["values"].values()),
                ("–" if cell["epsilon"] is None else format_epsilon(cell["epsilon"]))
                + notes.get(cell["assumptions"], ""),
                "–" if cell["delta"] is None else format_rounded_up(cell["delta"], 3),
                *(_format_mean(cell[name], cell[HALF_WIDTH.format(name)]) for name in columns),
                str(cell["runs"]),
                _format_state(cell),
            ]
            for cell in cells
        ],
        prose=True,
    )
    return [
        table,
        *(Text(f"{note.strip()} assuming: {text}", "fine") for text, note in notes.items()),
    ]


def _format_state(cell: Row) -> str:
    if cell["failed"]:
        return f"{cell['failed']} failed"
    return "" if cell["status"] == "complete" else str(cell["status"])


def _format_mean(mean: float | None, half: float | None) -> str:
    """Format a mean with its half-width. One within rounding errors of the mean is 0."""
    if mean is None:
        return "–"
    if half is not None and half < _ROUNDING * abs(mean):
        half = 0.0
    return f"{mean:.4g}" + ("" if half is None else f" ±\u00a0{half:.2g}")
