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


def compared(folders: Sequence[Path]) -> list[tuple[str, list[str]]]:
    """Rows of a table: a name, and its value for each run; keys that all have alike are left out.

    Raises:
        RunFolderError, JobError: not two runs or more, or one is no run's folder.
    """
    if len(folders) < 2:
        raise RunFolderError(f"Expected at least two runs to compare, got {len(folders)}.")
    runs = [read_run(folder) for folder in folders]
    jobs = [_flat(folder) for folder in folders]
    rows = [
        (key, [str(job[key]) for job in jobs])
        for key in jobs[0]
        if key not in _NOT_COMPARED and len({repr(job[key]) for job in jobs}) > 1
    ]
    summaries = [run.summary for run in runs]
    rows += [
        (name, [tell(summary) for summary in summaries])
        for name, tell in (
            ("spent", lambda s: "; ".join(map(words.stated, s.guarantees))),
            ("against", lambda s: words.against(s.primary)),
            ("noise", _noise),
            ("accuracy (R² of ridge) *", lambda s: number(s.accuracy, 4)),
            ("non-private accuracy *", lambda s: number(s.baseline_accuracy, 4)),
            ("AUC *", _auc),
            ("training loss *", lambda s: number(s.loss, 4)),
            ("excess loss *", lambda s: number(s.excess_loss, 4)),
            ("rounds", lambda s: f"{s.rounds_done} of {s.rounds}, {s.status}"),
            ("seconds", lambda s: number(s.seconds, 2)),
        )
    ]
    return rows


def _flat(folder: Path) -> dict[str, Any]:
    values = load_job(folder / "job.toml").values()
    return {f"{section}.{key}": v for section, keys in values.items() for key, v in keys.items()}


def _noise(summary: RunSummary) -> str:
    noise = summary.primary.noise
    seeded = ", seeded: it protects nobody" if noise.seeded else ""
    scale = "" if noise.scale is None else f" {noise.scale:.4g}"
    return f"{noise.law}{scale}{seeded}"


def _auc(summary: RunSummary) -> str:
    found = summary.judgement
    return number(found.auc, 4) if isinstance(found, Judgement) else "–"
