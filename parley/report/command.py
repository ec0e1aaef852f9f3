"""`parley report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parley.report.page import write_report


def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
) -> None:
    """Write a run's report.html, also of a run that was interrupted."""
    typer.echo(str(write_report(run_folder)))
