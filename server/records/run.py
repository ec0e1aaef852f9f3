"""What a run leaves in the hands of whoever started it, whichever engine ran it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.server.records import result_words, words
from parley.server.records.framed import framed
from parley.server.records.summary import RunSummary


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that ended, complete or not.

    Attributes:
        summary: what `summary.json` holds.
        folder: the run folder.
        theta: `[d]` the model.
    """

    summary: RunSummary
    folder: Path
    theta: NDArray[np.float64]

    def _repr_html_(self) -> str:
        """What a notebook shows: how it ended, what it cost, what was measured, its report."""
        summary = self.summary
        rows = [("protects", words.protected(of)) for of in summary.guarantees[:1]]
        rows += [("spent", f"{words.stated(of)}, {words.against(of)}") for of in summary.guarantees]
        if summary.primary.noise.seeded:
            rows.append(("noise", "seeded: this run protects nobody"))
        rows += [
            (f"{each.name} (simulation only)", f"{each.private}; non-private {each.non_private}")
            for each in (*result_words.measured(summary), *result_words.judged(summary))
        ]
        rows += [("advice", line) for line in summary.advice]
        rows.append(("report", str(self.folder / "report.html")))
        cells = "".join(
            f'<tr><th style="text-align: left">{escape(name)}</th>'
            f'<td style="text-align: left">{escape(value)}</td></tr>'
            for name, value in rows
        )
        shown = f"<p>{escape(result_words.status(summary))}</p><table>{cells}</table>"
        return shown + framed(self.folder / "report.html", "Report")
