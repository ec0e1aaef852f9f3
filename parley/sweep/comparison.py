"""A few runs side by side: which keys differ, and what each came to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.server.jobs.file import load_job
from parley.server.records import words
from parley.server.records.judgement import Judgement
from parley.server.records.numerals import number
from parley.server.records.reading import read_run
from parley.server.records.run_folder import RunFolderError
from parley.server.records.summary import RunSummary

_NOT_COMPARED = {"run.out"}


Table = list[tuple[str, list[str]]]
"""Rows: a name, and its value for each run."""


def compared(folders: Sequence[Path]) -> tuple[Table, Table]:
    """The keys in which the runs' jobs differ, and what each run came to.

    RunFolderError, JobError: not two runs or more, or one is no run's folder.
    """
    if len(folders) < 2:
        raise RunFolderError(f"Expected at least two runs to compare, got {len(folders)}.")
    runs = [read_run(folder) for folder in folders]
    jobs = [_flat(folder) for folder in folders]
    settings = [
        (key, [_value(job[key]) for job in jobs])
        for key in jobs[0]
        if key not in _NOT_COMPARED and len({repr(job[key]) for job in jobs}) > 1
    ]
    told = [_told(run.summary) for run in runs]
    return settings, [(name, [each[name] for each in told]) for name in told[0]]


def differing(settings: Table) -> str:
    """How many settings differ, as a heading."""
    if not settings:
        return "No setting differs"
    return f"{len(settings)} settings differ" if len(settings) > 1 else "One setting differs"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _told(of: RunSummary) -> dict[str, str]:
    found = of.judgement
    return {
        "spent": "; ".join(map(words.stated, of.guarantees)),
        "against": words.against(of.primary),
        "assuming": words.assumed(of.primary) or "–",
        "noise": _noise(of),
        "accuracy (R² of ridge) *": number(of.accuracy, 4),
        "non-private accuracy *": number(of.baseline_accuracy, 4),
        "AUC *": number(found.auc, 4) if isinstance(found, Judgement) else "–",
        "training loss *": number(of.loss, 4),
        "excess loss *": number(of.excess_loss, 4),
        "rounds": f"{of.rounds_done} of {of.rounds}, {of.status}",
        "seconds": number(of.seconds, 2),
    }


def _flat(folder: Path) -> dict[str, Any]:
    values = load_job(folder / "job.toml").values()
    return {f"{section}.{key}": v for section, keys in values.items() for key, v in keys.items()}


def _noise(summary: RunSummary) -> str:
    noise = summary.primary.noise
    seeded = ", seeded: it protects nobody" if noise.seeded else ""
    scale = "" if noise.scale is None else f" {noise.scale:.4g}"
    return f"{noise.law}{scale}{seeded}"
