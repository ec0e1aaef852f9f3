"""`parley report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parley.presentation.run_page import write_report


def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write. Default: report.html in the folder, or next to it if the folder "
            "belongs to another user or contains links.",
        ),
    ] = None,
) -> None:
    """Write a run's report.html, even if the run was interrupted."""
    typer.echo(str(write_report(run_folder, out=out)))
