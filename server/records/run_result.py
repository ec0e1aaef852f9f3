"""Define the result that the caller of a run gets, from every engine."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.server.records import result_text, summary_sections
from parley.server.records.run_summary import RunSummary


def build_report_frame(page: Path, title: str) -> str:
    """Return HTML that shows the page in a frame without scripts; empty if there is no page."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError:
        return ""
    return (
        f"<details><summary>{escape(title)}</summary>"
        f'<iframe sandbox srcdoc="{escape(text)}" title="{escape(title)}" '
        'style="width: 100%; height: 40em; border: 1px solid #8888"></iframe></details>'
    )


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A run that ended, complete or not.

    Attributes:
        theta: `[d]` the model.
    """

    summary: RunSummary
    folder: Path
    theta: NDArray[np.float64]

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: how the run ended, its cost, its report."""
        summary = self.summary
        rows = [(each.title, each.line) for each in summary_sections.build_run_sections(summary)]
        rows += [
            (f"{each.name} (simulation only)", f"{each.private}; non-private {each.non_private}")
            for each in (
                *result_text.list_model_metrics(summary),
                *result_text.list_evaluation_metrics(summary),
            )
        ]
        rows += [("advice", line) for line in summary.advice]
        rows.append(("report", str(self.folder / "report.html")))
        status = escape(f"{result_text.format_status(summary)} {summary.verdict}".rstrip())
        return (
            f"<p>{status}</p>{summary_sections.format_html_table(rows)}"
            f"{build_report_frame(self.folder / 'report.html', 'Report')}"
        )
