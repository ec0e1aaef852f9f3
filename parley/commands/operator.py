"""`parley submit`, `status` and `stop`: what an operator asks of a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from parley.command_options import AsJson, JobFile, Overrides, Quiet, ServerDir, Verbose
from parley.deploy.process_errors import ProcessError
from parley.deploy.stream.operator_client import fetch_status, stop_runs, submit_job
from parley.terminal.deployment_status import watch_status as watch_it
from parley.terminal.result_output import end_command


def submit(
    job: JobFile = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The server's folder, or an operator's.")
    ] = Path(),
    sets: Overrides = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue this run of DIR/runs.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a job with the parties of a deployment, from the server's folder or an operator's.

    Ctrl-C ends this command, not the run. To see the run, use [bold]parley status DIR[/bold]; to
    stop it, [bold]parley stop DIR[/bold].
    """
    result = submit_job(job, to=to, sets=sets or [], resume=resume, quiet=quiet, verbose=verbose)
    end_command(result, as_json=as_json, verbose=verbose)


def show_status(
    folder: ServerDir,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show a table and update it until Ctrl-C.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Show a deployment's parties and runs, and the state of each party in them."""
    if watch:
        watch_it(partial(fetch_status, folder), connection_error=ProcessError)
    status = fetch_status(folder)
    for line in status.format_lines() if verbose else status.list_lines():
        typer.echo(line)


def stop(
    folder: ServerDir,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run to stop; none: all.")
    ] = None,
) -> None:
    """Stop a run; `parley submit --resume RUN` continues it.

    If a round is open, it is repeated when the run continues: parties send the same contributions,
    and nothing is charged twice.
    """
    for name in stop_runs(folder, run):
        typer.echo(f"{name}: stopping.")
