"""`parley new`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from parley.presentation.short_layout import format_rows
from parley.starter.starter_folder import EXAMPLE, build_starter_folder


def new(
    name: Annotated[str, Argument(metavar="NAME", help="Folder to make, in the current one.")],
    data: Annotated[
        str,
        Option(
            help="Your records: a file (CSV, Parquet, .npz), or a glob with one file per party, in "
            "quotes. Or a bundled data set: breast-cancer, digits or synthetic."
        ),
    ] = EXAMPLE,
    label: Annotated[str | None, Option(help="Column to predict (default: the last one).")] = None,
    schema: Annotated[
        Path | None,
        Option(help="Schema file to copy. Without it, a draft is made from your records."),
    ] = None,
) -> None:
    """Make a folder with a job, a schema, a network and a notebook that run as they are.

    Without --data, the job uses public example records. Your records are not copied.

    [bold]parley new study --data patients.csv --label outcome[/bold] writes:

    job.toml: a job of twelve keys, for [bold]parley plan[/bold] and [bold]parley run[/bold].

    schema.toml: ranges and categories of your columns. Review what was read from your records.

    model.py: a PyTorch network, for [bold]parley run --model model.py:network[/bold].

    notebook.ipynb: plan, train, predict, ask for statistics, train the network.
    """
    folder = build_starter_folder(name, data=data, schema=schema, label=label)
    folder.write()
    for line in format_rows(folder.rows):
        typer.echo(line)
