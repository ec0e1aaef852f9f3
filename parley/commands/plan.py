"""`parley plan`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from parley.command_options import AsJson, JobFile, Overrides, Verbose
from parley.job_key_options import accept_key_options
from parley.planning.plan_job import plan as plan_job
from parley.presentation.page_registry import PAGES
from parley.presentation.plan_page import format_refusal, list_plan_lines
from parley.run_request import build_run_request
from parley.safe_io.json_writing import format_json
from parley.terminal.document_output import print_document
from parley.terminal.rich_output import print_lines


@accept_key_options
def plan(
    job: JobFile = None,
    sets: Overrides = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    seconds_a_step: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Seconds that one secure sum takes on your machines, to estimate the hours of "
            "distributed DP-SGD.",
        ),
    ] = None,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code",
            help="Allow the job to run your own code: a loss, network, map or algorithm that it "
            "names. Without this option such a job is refused.",
        ),
    ] = False,
    *,
    keys: dict[str, Any],
) -> None:
    """Show the noise and the cost in ε of a job before any data are read.

    The number of parties and their least number of records are enough, for example:

    [bold]parley plan --parties 100 --set parties.min-records=500[/bold]
    """
    stated: dict[str, Any] = {"trust_code": trust_code}
    if seconds_a_step is not None:
        stated["seconds_a_step"] = seconds_a_step
    request = build_run_request(job=job, overrides=sets or (), reads_data=False, **keys)
    outlook = plan_job(request.job, **stated)
    if outlook.refusal is not None and as_json:
        typer.echo(f"{format_refusal(outlook)}\n", err=True)
    if as_json:
        typer.echo(format_json(outlook.to_json()))
    elif verbose:
        print_document(PAGES["plan"](outlook))
    else:
        print_lines(list_plan_lines(outlook))
    if outlook.refusal is not None:
        raise typer.Exit(3)
