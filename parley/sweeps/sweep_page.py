"""Write the self-contained pages of a sweep and of a comparison of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from parley.privacy.accounting.rounding import format_rounded_up
from parley.privacy.accounting.threat_model import Adversary
from parley.report.components import write_page as write_template
from parley.server.records import guarantee_text
from parley.server.records.evaluation import ClassifierMetrics
from parley.server.records.number_format import format_epsilon, format_number
from parley.server.records.run_folder import RunFolderError, load_run_job
from parley.server.records.run_reader import read_run
from parley.server.records.run_summary import RunSummary
from parley.sweeps.sweep_figures import SweepFigure
from parley.sweeps.sweep_results import (
    FIGURES,
    HALF_WIDTH,
    Row,
    compute_total_charge,
    format_assumptions,
    summarise_rows,
)

_NOT_COMPARED = {"run.out"}


Table = list[tuple[str, list[str]]]
"""Rows with a name, and a value for each run."""


def compare_runs(folders: Sequence[Path]) -> tuple[Table, Table]:
    """Return the keys in which the runs' jobs differ, and each run's results.

    Raises RunFolderError or JobError: fewer than two runs, or a folder without a run.
    """
    if len(folders) < 2:
        raise RunFolderError(f"Expected at least two runs to compare, got {len(folders)}.")
    runs = [read_run(folder) for folder in folders]
    jobs = [_load_flat_job(folder) for folder in folders]
    settings = [
        (key, [_format_value(job[key]) for job in jobs])
        for key in jobs[0]
        if key not in _NOT_COMPARED and len({repr(job[key]) for job in jobs}) > 1
    ]
    told = [_format_outcome(run.summary) for run in runs]
    return settings, [(name, [each[name] for each in told]) for name in told[0]]


def list_run_names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, or their paths if two names are equal."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def format_difference_count(settings: Table) -> str:
    """Return the number of differing settings, as a heading."""
    if not settings:
        return "No setting differs"
    return f"{len(settings)} settings differ" if len(settings) > 1 else "One setting differs"


def _format_value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _format_outcome(summary: RunSummary) -> dict[str, str]:
    found = summary.judgement
    return {
        f"spent, {guarantee_text.FIXED_RELEASES_NOTE}": "; ".join(
            map(guarantee_text.format_guarantee, summary.guarantees)
        ),
        "against": guarantee_text.format_adversaries(summary.primary),
        "assuming": guarantee_text.format_assumptions(summary.primary) or "–",
        "noise": _format_noise(summary),
        "accuracy (R² of ridge) *": format_number(summary.accuracy, 4),
        "non-private accuracy *": format_number(summary.baseline_accuracy, 4),
        "AUC *": format_number(found.auc, 4) if isinstance(found, ClassifierMetrics) else "–",
        "training loss *": format_number(summary.loss, 4),
        "excess loss *": format_number(summary.excess_loss, 4),
        "rounds": f"{summary.rounds_done} of {summary.rounds}, {summary.status}",
        "seconds": format_number(summary.seconds, 2),
    }


def _load_flat_job(folder: Path) -> dict[str, Any]:
    values = load_run_job(folder).to_values(every_form=True)
    return {f"{section}.{key}": v for section, keys in values.items() for key, v in keys.items()}


def _format_noise(summary: RunSummary) -> str:
    noise = summary.primary.noise
    seeded = ", seeded: it protects nobody" if noise.seeded else ""
    scale = "" if noise.scale is None else f" {noise.scale:.4g}"
    return f"{noise.law}{scale}{seeded}"


_MAX_ERRORS = 20


def format_total_cost(rows: Sequence[Row]) -> str:
    """Return what all runs would cost on real records, in a sentence."""
    good = [row for row in rows if row["status"] != "failed"]
    if not good:
        return "No run ended."
    epsilon, delta, by = compute_total_charge(rows)
    scopes = sorted({f"{row['unit']}, {row['neighbouring']}" for row in good})
    against = sorted({Adversary(row["adversary"]).words for row in good})
    assumed = format_assumptions(good)
    assuming = f"; assuming: {assumed}" if assumed else ""
    return (
        f"On real records all of them together would cost at most ε = {format_epsilon(epsilon)} at "
        f"δ = {format_rounded_up(delta, 3)} (unit and relation: {'; '.join(scopes)}; against "
        f"{'; '.join(against)}; {by} account, {guarantee_text.FIXED_RELEASES_NOTE}"
        f"{assuming}). Their noise is seeded: it protects nobody."
    )


def write_page(
    rows: Sequence[Row],
    axes: Sequence[str],
    figures: Sequence[SweepFigure],
    folder: Path,
    *,
    title: str,
) -> Path:
    """Write a sweep's figures and table, and return the page's path."""
    cells = summarise_rows(rows, axes)
    columns = [name for name in FIGURES if any(cell[name] is not None for cell in cells)]
    errors = [str(row["error"]) for row in rows if row["status"] == "failed"]
    return write_template(
        folder / "sweep.html",
        "sweep.html.j2",
        package="parley.sweeps",
        title=title,
        runs=len(rows),
        failed=len(errors),
        cost=format_total_cost(rows),
        figures=[
            {"title": figure.title, "svg": Markup(figure.svg), "failed": figure.failed}  # noqa: S704
            for figure in figures
        ],
        axes=axes,
        columns=columns,
        rows=[
            {
                "axes": list(cell["values"].values()),
                "epsilon": "–" if cell["epsilon"] is None else format_epsilon(cell["epsilon"]),
                "delta": "–" if cell["delta"] is None else format_rounded_up(cell["delta"], 3),
                "figures": [
                    _format_mean(cell[name], cell[HALF_WIDTH.format(name)]) for name in columns
                ],
                **{name: cell[name] for name in ("runs", "failed", "status", "assumptions")},
            }
            for cell in cells
        ],
        errors=list(dict.fromkeys(errors))[:_MAX_ERRORS],
    )


def _format_mean(mean: float | None, half: float | None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.4g}" + ("" if half is None else f" ± {half:.2g}")


def write_comparison(runs: Sequence[Path], target: Path) -> Path:
    """Write a page with the runs side by side, from `compare_runs`, and return its path."""
    settings, results = compare_runs(runs)
    tables = [(format_difference_count(settings), settings), ("What each came to", results)]
    return write_template(
        target,
        "compare.html.j2",
        package="parley.sweeps",
        names=list_run_names(runs),
        tables=tables,
    )
