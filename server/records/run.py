"""What a run leaves in the hands of whoever started it, whichever engine ran it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.server.records import result_words, sections
from parley.server.records.framed import framed
from parley.server.records.summary import RunSummary


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that ended, complete or not.

    Attributes:
        theta: `[d]` the model.
    """

    summary: RunSummary
    folder: Path
    theta: NDArray[np.float64]

    def _repr_html_(self) -> str:
        """What a notebook shows: how it ended, what it came to, its report."""
        summary = self.summary
        rows = [(each.title, each.line) for each in sections.of_run(summary)]
        rows += [
            (f"{each.name} (simulation only)", f"{each.private}; non-private {each.non_private}")
            for each in (*result_words.measured(summary), *result_words.judged(summary))
        ]
        rows += [("advice", line) for line in summary.advice]
        rows.append(("report", str(self.folder / "report.html")))
        status = escape(result_words.status(summary))
        return (
            f"<p>{status}</p>{sections.html_table(rows)}"
            f"{framed(self.folder / 'report.html', 'Report')}"
        )
