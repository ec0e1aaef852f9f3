"""What a run leaves in the hands of whoever started it, whichever engine ran it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.server.records.summary import RunSummary

__all__ = ["Run"]


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
