"""Write event files for TensorBoard, with tensorboardX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter


class TensorboardTracker:
    """A folder per run inside `folder`: scalars by round, and the job's keys as a text.

    Artefacts are named, not copied, because an event file cannot contain them.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._writer: Any = None

    def begin(self, name: str, parameters: Mapping[str, str]) -> None:
        """Open the run's event file."""
        self._writer = SummaryWriter(logdir=str(self._folder / name), write_to_disk=True)
        rows = "\n".join(f"| {key} | {value} |" for key, value in parameters.items())
        self._writer.add_text("job", f"| key | value |\n|---|---|\n{rows}")

    def log_metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Write the scalars of a round."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self, status: str, artefacts: Sequence[Path]) -> None:
        """Write how the run ended and where the artefacts are."""
        places = "".join(f"\n- {path.resolve()}" for path in artefacts)
        self._writer.add_text("ended", f"{status}{places}")
        self._writer.close()
