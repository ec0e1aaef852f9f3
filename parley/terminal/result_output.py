"""Print a run that ended, and end its command."""

from __future__ import annotations

import typer

from parley.presentation.page_registry import PAGES
from parley.presentation.short_run import list_run_lines
from parley.safe_io.json_writing import format_json
from parley.server.records.run_result import RunResult
from parley.terminal.rich_output import print_lines


def end_command(result: RunResult, *, as_json: bool, verbose: bool) -> None:
    """Print a run that ended. Raise typer's exit with status 1, or 3 for budget, if it is not
    complete.
    """
    if as_json:
        typer.echo(format_json(result.summary.to_json()))
    else:
        print_result(result, verbose=verbose)
    status = result.summary.status
    if status != "complete":
        raise typer.Exit(3 if status == "budget-exhausted" else 1)


def print_result(result: RunResult, *, verbose: bool) -> None:
    """Print a run that ended: its overview, or at most 15 lines."""
    if verbose:
        from parley.terminal.document_output import print_document  # noqa: PLC0415 - only with -v

        print_document(PAGES["overview"](result.summary, result.folder))
    else:
        print_lines(list_run_lines(result.summary, result.folder))
