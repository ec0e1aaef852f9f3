"""Build the page that compares runs: the keys in which their jobs differ, then their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.presentation.document import Document, Table, build_section
from parley.safe_io.toml_writing import format_toml_value
from parley.server.records.evaluation import ClassifierMetrics
from parley.server.records.run_folder import RunFolderError
from parley.server.records.run_folder_opening import load_run_job
from parley.server.records.run_reader import read_run
from parley.server.records.run_summary import RunSummary
from parley.server.statements.guarantee_text import (
    FIXED_RELEASES_NOTE,
    format_adversaries,
    format_assumptions,
    format_guarantee,
)
from parley.server.statements.number_format import format_number

_NOT_COMPARED = {"run.out"}
Rows = list[tuple[str, list[str]]]
"""Rows with a name, and a value for each run."""


def build_comparison_document(folders: Sequence[Path]) -> Document:
    """Build the page of runs side by side.

    Raises RunFolderError or JobError: fewer than two runs, or a folder without a run.
    """
    settings, results = compare_runs(folders)
    head = ["", *list_run_names(folders)]
    return Document(
        overline="Parley",
        headline=f"{len(folders)} runs compared",
        sections=[
            build_section(
                title, Table(head=head, rows=[[name, *values] for name, values in rows], prose=True)
            )
            for title, rows in ((format_difference_count(settings), settings), ("Results", results))
        ],
        footer="* simulation only: a real run would have to release each figure, and pay for it",
    )


def compare_runs(folders: Sequence[Path]) -> tuple[Rows, Rows]:
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
    outcomes = [_format_outcome(run.summary) for run in runs]
    return settings, [(name, [each[name] for each in outcomes]) for name in outcomes[0]]


def list_run_names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, or their paths if two names are equal."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def format_difference_count(settings: Rows) -> str:
    """Return the number of differing settings, as a heading."""
    if not settings:
        return "No setting differs"
    return f"{len(settings)} settings differ" if len(settings) > 1 else "One setting differs"


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.6g}" if isinstance(value, float) else format_toml_value(value)


def _format_outcome(summary: RunSummary) -> dict[str, str]:
    found = summary.judgement
    return {
        f"spent, {FIXED_RELEASES_NOTE}": "; ".join(map(format_guarantee, summary.guarantees)),
        "against": format_adversaries(summary.primary),
        "assuming": format_assumptions(summary.primary) or "–",
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
