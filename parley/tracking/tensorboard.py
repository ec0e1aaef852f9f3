"""Event files that TensorBoard reads, by tensorboardX."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary


class TensorboardTracker:
    """A folder for each run within `folder`: scalars by round, the job's keys as a text,
    the report's figures as images.

    Artefacts are named, not copied: an event file holds none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def begin(self, name: str, parameters: Mapping[str, str]) -> None:
        """Opens the run's event file."""
        self._writer = SummaryWriter(logdir=str(self._folder / name), write_to_disk=True)
        rows = "\n".join(f"| {key} | {value} |" for key, value in parameters.items())
        self._writer.add_text("job", f"| key | value |\n|---|---|\n{rows}")

    def figures(self, values: Mapping[str, float], *, step: int) -> None:
        """Scalars of a round."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def pictures(self, pngs: Mapping[str, bytes]) -> None:
        """Images, as they are: an event holds a PNG's bytes."""
        for name, png in pngs.items():
            wide, high = struct.unpack_from(">2I", png, 16)  # of the PNG's head
            image = Summary.Image(width=wide, height=high, colorspace=4, encoded_image_string=png)
            summary = Summary(value=[Summary.Value(tag=f"figures/{name}", image=image)])
            self._writer.file_writer.add_summary(summary)

    def end(self, status: str, artefacts: Sequence[Path]) -> None:
        """Says how it ended and where the artefacts are."""
        places = "".join(f"\n- {path.resolve()}" for path in artefacts)
        self._writer.add_text("ended", f"{status}{places}")
        self._writer.close()
