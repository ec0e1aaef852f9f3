"""`parley run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer import Option

from parley.command_options import AsJson, JobFile, Overrides, Quiet, Verbose
from parley.job_key_options import accept_key_options
from parley.run_request import build_run_request
from parley.server.jobs.job_file import render_job
from parley.server.jobs.section_base import JobError
from parley.terminal.live_progress import RunDisplay
from parley.terminal.result_output import end_command

Partial = Annotated[
    bool,
    Option(
        "--partial",
        help="Run as many rounds as the data's remaining budget allows, even if not all fit.",
    ),
]
Canaries = Annotated[
    str | None,
    Option(
        metavar="canaries=K",
        help="Add K extra records and try to detect them in the model: a weak lower bound on ε.",
    ),
]
Track = Annotated[
    list[str] | None,
    Option(
        metavar="WHERE",
        help="Log the run to a tracker: mlflow:URI or tensorboard:DIR. Needs parley\\[mlflow] or "
        "parley\\[tensorboard]. Repeatable.",
    ),
]


@accept_key_options
def run(
    job: JobFile = None,
    sets: Overrides = None,
    out: Annotated[Path | None, Option(help="Run folder to make (default: runs/…).")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    print_job: Annotated[
        bool,
        Option("--print-job", help="Print a job file with every key and its meaning; run nothing."),
    ] = False,
    partial: Partial = False,
    resume: Annotated[
        Path | None, Option(metavar="RUN", help="Continue the run in this folder.")
    ] = None,
    audit: Canaries = None,
    track: Track = None,
    *,
    keys: dict[str, Any],
) -> None:
    """Run a job with all its parties here; write a run folder with model, ledger and report.

    With no argument, five hospitals train a breast-cancer classifier on bundled data. With
    [bold]--engine processes --parties 3[/bold], three real processes train it and talk over TLS.
    """
    overrides = [*(sets or []), *(["run.partial=true"] if partial else [])]
    given = any(value is not None for value in keys.values())
    if resume is not None and (
        job is not None or overrides or given or out is not None or print_job or audit is not None
    ):
        raise JobError("Expected --resume RUN alone: the run continues with its own job.")
    request = build_run_request(job=job, overrides=overrides, **keys)
    if print_job:
        typer.echo(render_job(request.job, every_form=True), nl=False)
        return
    canaries = 0 if audit is None else _parse_canaries(audit)
    from parley.run_job import run_request  # noqa: PLC0415 - start-up: --print-job runs nothing (.3 s)

    with RunDisplay(quiet=quiet, verbose=verbose) as display:
        result = run_request(
            request, out=out, resume=resume, observer=display, canaries=canaries, track=track or ()
        )
    end_command(result, as_json=as_json, verbose=verbose)


def _parse_canaries(text: str) -> int:
    name, _, count = text.partition("=")
    if name != "canaries" or not (count.isascii() and count.isdigit() and len(count) < 10):
        raise click.UsageError(f"Expected --audit canaries=K, such as canaries=500, got {text!r}.")
    return int(count)
