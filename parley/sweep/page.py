"""The pages of a sweep and of a comparison, each of which needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from parley.privacy.accounting.guarantee import Adversary
from parley.privacy.accounting.rounding import shown_up
from parley.report.parts import write_page as write_template
from parley.server.records.numerals import epsilon_text
from parley.sweep.comparison import compared, differing
from parley.sweep.figures import Figure
from parley.sweep.results import FIGURES, HALF, Row, assumed_in, charged_together, summarised

_MOST_ERRORS = 20


def cost_text(rows: Sequence[Row]) -> str:
    """What all runs would cost on real records, in a sentence."""
    good = [row for row in rows if row["status"] != "failed"]
    if not good:
        return "No run ended."
    epsilon, delta, by = charged_together(rows)
    scopes = sorted({f"{row['unit']}, {row['neighbouring']}" for row in good})
    against = sorted({Adversary(row["adversary"]).words for row in good})
    assumed = assumed_in(good)
    assuming = f"; assuming: {assumed}" if assumed else ""
    return (
        f"On real records all of them together would cost at most ε = {epsilon_text(epsilon)} at "
        f"δ = {shown_up(delta, 3)} (unit and relation: {'; '.join(scopes)}; against "
        f"{'; '.join(against)}; {by} account{assuming}). Their noise is seeded: it protects nobody."
    )


def write_page(
    rows: Sequence[Row], axes: Sequence[str], figures: Sequence[Figure], folder: Path, *, title: str
) -> Path:
    """Writes a sweep's figures and table, and returns the page's path."""
    cells = summarised(rows, axes)
    columns = [name for name in FIGURES if any(cell[name] is not None for cell in cells)]
    errors = [str(row["error"]) for row in rows if row["status"] == "failed"]
    return write_template(
        folder / "sweep.html",
        "sweep.html.j2",
        package="parley.sweep",
        title=title,
        runs=len(rows),
        failed=len(errors),
        cost=cost_text(rows),
        # Drawn by vl-convert, which escapes what it is given.
        figures=[
            {"title": figure.title, "svg": Markup(figure.svg), "failed": figure.failed}  # noqa: S704
            for figure in figures
        ],
        axes=axes,
        columns=columns,
        rows=[
            {
                "axes": list(cell["values"].values()),
                "epsilon": "–" if cell["epsilon"] is None else epsilon_text(cell["epsilon"]),
                "delta": "–" if cell["delta"] is None else shown_up(cell["delta"], 3),
                "figures": [_shown(cell[name], cell[HALF.format(name)]) for name in columns],
                **{name: cell[name] for name in ("runs", "failed", "status", "assumptions")},
            }
            for cell in cells
        ],
        errors=list(dict.fromkeys(errors))[:_MOST_ERRORS],
    )


def _shown(mean: float | None, half: float | None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.4g}" + ("" if half is None else f" ± {half:.2g}")


def write_comparison(runs: Sequence[Path], target: Path) -> Path:
    """Writes a page with the runs side by side, as `compared` has them, and returns its path."""
    settings, results = compared(runs)
    tables = [(differing(settings), settings), ("What each came to", results)]
    return write_template(
        target,
        "compare.html.j2",
        package="parley.sweep",
        names=[run.resolve().name for run in runs],
        tables=tables,
    )
