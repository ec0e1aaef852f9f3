"""`parley sweep` and `parley compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.control import Control
from typer import Argument, Option

from parley.command_options import AsJson, Quiet, Verbose
from parley.job_key_options import accept_key_options
from parley.keyword_keys import KEYWORD_KEYS
from parley.presentation.json_renderer import to_json
from parley.presentation.page_registry import PAGES, write_page
from parley.safe_io.json_writing import format_json
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.server.jobs.section_base import JobError
from parley.sweeps.sweep_cells import MAX_CELLS
from parley.sweeps.sweep_runner import SweepProgress, SweepResult, run_sweep
from parley.terminal.document_output import print_document
from parley.terminal.rich_output import Screen


@accept_key_options
def run_sweep_command(
    file: Annotated[
        Path, Argument(metavar="SWEEP", help="Job file (TOML) with a \\[sweep] table.")
    ],
    out: Annotated[
        Path | None, Option(help="Folder of the results (default: sweeps/NAME).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override one key of the job in all cells. Repeatable.",
        ),
    ] = None,
    workers: Annotated[
        int | None, Option(min=1, help="Number of processes (default: one per core).")
    ] = None,
    yes: Annotated[bool, Option("--yes", help=f"Allow more than {MAX_CELLS:,} cells.")] = False,
    metric: Annotated[
        str | None,
        Option(
            help="Metric to show: accuracy, auc, r2, loss or excess_loss (default: accuracy or r2)."
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    *,
    keys: dict[str, Any],
) -> None:
    """Simulate a job for every combination of key values; plot means with intervals.

    To resume after Ctrl-C, repeat the command: finished runs are kept. A failed cell does not stop
    the others. Exit status 1: some cells failed.
    """
    if keys.pop("label") is not None:
        raise JobError("Expected a schema that names the label, got --label. Use --schema FILE.")
    values = {KEYWORD_KEYS[word]: value for word, value in keys.items() if value is not None}
    screen, reached = Screen(stderr=True), ""
    terminal = screen.is_terminal

    def observe(progress: SweepProgress) -> None:
        nonlocal reached
        reached = f" after {progress.done} of {progress.total} runs"
        if quiet:
            return
        failed = f", {progress.failed} failed" if progress.failed else ""
        kept = f" ({progress.kept} from before)" if progress.kept else ""
        line = f"{progress.done} of {progress.total} runs{kept}{failed}"
        if terminal:
            screen.control(Control.move_to_column(0))
            screen.print(line, end="")
        elif progress.done == progress.total:
            typer.echo(line, err=True)

    try:
        result = run_sweep(
            file,
            out=out,
            overrides=settings or (),
            values=values,
            workers=workers,
            most=None if yes else MAX_CELLS,
            metric=metric,
            observe=observe,
        )
    except KeyboardInterrupt:
        typer.echo(
            f"{chr(10) if terminal else ''}Stopped{reached}. Repeat the command to run the rest.",
            err=True,
        )
        raise typer.Exit(130) from None
    if terminal and not quiet:
        typer.echo("", err=True)
    if not verbose:
        for line in result.list_lines():
            typer.echo(to_one_line(line))
    _print_outcome(result, verbose=verbose)


def _print_outcome(result: SweepResult, *, verbose: bool) -> None:
    """Print what all cells would cost on real records, if asked for, and what failed."""
    runs = f"{len(result.rows)} {format_noun(len(result.rows), 'run')}"
    if verbose:
        typer.echo(f"{result.page}: {runs}, simulation only. {result.cost}")
        for note in result.notes:
            typer.echo(to_one_line(f"Note: {note}"))
    for error in result.errors:
        typer.echo(to_one_line(f"✗ {error}"), err=True)
    if result.errors:
        raise typer.Exit(1)


def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN RUN…", help="Folders of the runs.")],
    out: Annotated[Path | None, Option(help="Also write a self-contained HTML page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: the keys in which their jobs differ, and their results."""
    document = PAGES["comparison"](runs)
    if as_json:
        typer.echo(format_json(to_json(document)))
    else:
        print_document(document)
    if out is not None:
        typer.echo(f"{write_page('comparison', out, runs)}", err=as_json)
