"""Define the result that the caller of a run gets, from every engine."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
