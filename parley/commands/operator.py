"""`parley submit`, `status` and `stop`: what an operator asks of a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from parley.command_options import ServerDir, Verbose
from parley.deploy.process_errors import ProcessError
from parley.deploy.stream import operator_client
from parley.safe_io.json_writing import format_json
from parley.terminal.deployment_status import watch_status as watch_it
from parley.terminal.result_output import print_result


def submit(
    job: Annotated[Path | None, typer.Argument(metavar="[JOB]", help="Job file (TOML).")] = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The server's folder, or an operator's.")
    ] = Path(),
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a job's key.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with this run of DIR/runs.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, all else on stderr.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run a job with the parties of a deployment, from the server's folder or an operator's.

    Ctrl-C stops watching, not the run: [bold]parley status DIR[/bold] shows it, [bold]parley stop
    DIR[/bold] ends it.
    """
    result = operator_client.submit_job(
        job, to=to, sets=sets or [], resume=resume, quiet=quiet, verbose=verbose
    )
    if as_json:
        typer.echo(format_json(result.summary.to_json()))
    else:
        print_result(result, verbose=verbose)
    ended = result.summary.status
    if ended != "complete":
        raise typer.Exit(3 if ended == "budget-exhausted" else 1)


def show_status(
    folder: ServerDir,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it as a table, over and over; Ctrl-C ends it.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show a deployment's parties and runs, and the state of every party in a run."""
    if watch:
        watch_it(partial(operator_client.fetch_status, folder), connection_error=ProcessError)
    status = operator_client.fetch_status(folder)
    for line in status.format_lines() if verbose else status.list_lines():
        typer.echo(line)


def stop(
    folder: ServerDir,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run; none: all.")] = None,
) -> None:
    """Stop a run; `parley submit --resume RUN` continues it.

    A round that is open then is asked for again: parties answer it with the same contributions,
    and nothing is paid for twice.
    """
    for name in operator_client.stop_runs(folder, run):
        typer.echo(f"{name}: stopping.")
