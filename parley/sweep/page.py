"""`sweep.html`: a sweep's figures and table on a page that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from parley.privacy.accounting.guarantee import Adversary
from parley.privacy.accounting.rounding import shown_up
from parley.server.records.numerals import epsilon_text
from parley.sweep.comparison import compared
from parley.sweep.figures import Figure
from parley.sweep.results import FIGURES, Mean, charged_together, summarised

_MOST_ERRORS = 20


def cost_text(rows: Sequence[dict[str, Any]]) -> str:
    """What all runs would cost on real records, in a sentence."""
    good = [row for row in rows if row["status"] != "failed"]
    if not good:
        return "No run ended."
    epsilon, delta, by = charged_together(rows)
    scopes = sorted({f"{row['unit']}, {row['neighbouring']}" for row in good})
    against = sorted({Adversary(row["adversary"]).words for row in good})
    return (
        f"On real records all of them together would cost at most ε = {epsilon_text(epsilon)} at "
        f"δ = {shown_up(delta, 3)} (unit and relation: {'; '.join(scopes)}; against "
        f"{'; '.join(against)}; {by} account). Their noise is seeded: it protects nobody."
    )


def write_page(
    rows: Sequence[dict[str, Any]],
    axes: Sequence[str],
    figures: Sequence[Figure],
    folder: Path,
    *,
    title: str,
) -> Path:
    """Writes the page and returns its path."""
    cells = summarised(rows, axes)
    columns = [name for name in FIGURES if any(name in cell.figures for cell in cells)]
    failed = [row for row in rows if row["status"] == "failed"]
    page = _template(
        "sweep.html.j2"
    ).render(
        title=title,
        runs=len(rows),
        failed=len(failed),
        cost=cost_text(rows),
        # Drawn by vl-convert, which escapes what it is given.
        figures=[
            {"name": f.name, "title": f.title, "svg": Markup(f.svg), "failed": f.failed}  # noqa: S704
            for f in figures
        ],
        axes=axes,
        columns=columns,
        rows=[
            {
                "axes": list(cell.values.values()),
                "epsilon": "–" if cell.epsilon is None else epsilon_text(cell.epsilon),
                "delta": "–" if cell.delta is None else shown_up(cell.delta, 3),
                "figures": [shown(cell.figures.get(name)) for name in columns],
                "runs": max((mean.count for mean in cell.figures.values()), default=0),
                "failed": cell.failed,
                "status": cell.status,
            }
            for cell in cells
        ],
        errors=list(dict.fromkeys(str(row["error"]) for row in failed))[:_MOST_ERRORS],
    )
    return _written(page, folder / "sweep.html")


def write_comparison(runs: Sequence[Path], target: Path) -> Path:
    """Writes a page with the runs side by side, and returns its path.

    Raises:
        RunFolderError, JobError: not two runs or more, or one is no run's folder.
        OSError: the page can't be written.
    """
    names = [run.resolve().name for run in runs]
    page = _template("compare.html.j2").render(names=names, rows=compared(runs))
    return _written(page, target)


def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("parley.sweep"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _written(page: str, target: Path) -> Path:
    draft = target.with_name(f".{target.name}.part")
    draft.write_text(page, encoding="utf-8")
    os.replace(draft, target)
    return target


def shown(mean: Mean | None) -> str:
    """A mean with its interval, in short."""
    if mean is None:
        return "–"
    return f"{mean.mean:.4g}" + ("" if mean.half is None else f" ± {mean.half:.2g}")
