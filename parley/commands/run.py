"""`parley run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer

from parley.command_options import AsJson, JobFile, Overrides, Verbose
from parley.safe_io.json_writing import format_json
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.terminal.live_progress import RunDisplay
from parley.terminal.run_output import print_result, print_short_result

Engine = Annotated[
    str | None,
    typer.Option(
        help="fast: all parties in this process. ray: dealt to workers of Ray, here or on a "
        "cluster; flower: Flower's simulation (both need parley\\[ray]). processes: a real server "
        "and one process for each party, with TLS."
    ),
]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial",
        help="Begin although the data's budget won't last for all rounds: as many as fit.",
    ),
]
Canaries = Annotated[
    str | None,
    typer.Option(
        metavar="canaries=K",
        help="Hide K extra records and guess them from the model: a weak lower bound on ε.",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHERE",
        help="Tell a tracker of the run: mlflow:URI or tensorboard:DIR (repeatable; needs "
        "parley\\[mlflow] or parley\\[tensorboard]).",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, help="Seed the noise: you can repeat the run, and its noise protects nobody."
    ),
]


def run(
    job: JobFile = None,
    sets: Overrides = None,
    engine: Engine = None,
    parties: Annotated[
        int | None, typer.Option(min=1, help="Number of parties: --set parties.count=N.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to make (default: runs/…).")] = None,
    seed: Seed = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    print_job: Annotated[
        bool, typer.Option("--print-job", help="Write the whole job with a comment on each key.")
    ] = False,
    partial: Partial = False,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Continue the run in this folder.")
    ] = None,
    audit: Canaries = None,
    track: Track = None,
) -> None:
    """Run a job with all its parties here; leave a run folder with model, ledger and report.

    With no argument, five hospitals learn a breast-cancer classifier on bundled data. With
    [bold]--engine processes --parties 3[/bold] three real processes do so, and talk over TLS.
    """
    chosen = {
        "run.seed": seed,
        "run.engine": engine,
        "parties.count": parties,
        "run.partial": "true" if partial else None,
    }
    overrides = [
        *(sets or []),
        *(f"{key}={value}" for key, value in chosen.items() if value is not None),
    ]
    loaded = None
    if resume is None:
        loaded = load_job(job, overrides=overrides)
        if print_job:
            typer.echo(render_job(loaded, every_form=True), nl=False)
            return
    elif job is not None or overrides or out is not None or print_job or audit is not None:
        raise JobError("Expected --resume RUN alone: the run continues with its own job.")
    canaries = 0 if audit is None else _parse_canaries(audit)
    from parley.run_job import run as run_job  # noqa: PLC0415 - start-up: --print-job runs nothing (.3 s)

    with RunDisplay(quiet=quiet, verbose=verbose) as display:
        result = run_job(
            loaded, out=out, resume=resume, observer=display, canaries=canaries, track=track or ()
        )
    if as_json:
        typer.echo(format_json(result.summary.to_json()))
    elif verbose:
        print_result(result)
    else:
        print_short_result(result)
    if result.summary.status != "complete":
        raise typer.Exit(3 if result.summary.status == "budget-exhausted" else 1)


def _parse_canaries(text: str) -> int:
    name, _, count = text.partition("=")
    if name != "canaries" or not (count.isascii() and count.isdigit() and len(count) < 10):
        raise click.UsageError(f"Expected --audit canaries=K, such as canaries=500, got {text!r}.")
    return int(count)
