"""The command line. Every command is thin: read, call, print; errors become one clear message.

Exit status: 0 done; 1 the run could not go on (disk, ledger, parties); 2 the input is wrong;
3 the privacy budget refuses; 4 an audit refuted a claim; 130 interrupted (resumable).
"""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import click
import typer

from parley.analytics.commands import add_query_commands
from parley.audit.commands import audit_app
from parley.certificate.commands import certificate_app
from parley.client.contract.printable import guard_streams
from parley.deploy.commands import add_deploy_commands
from parley.errors import exit_status
from parley.ledger_commands import ledger_app
from parley.options import AsJson, JobFile, Sets
from parley.prediction.commands import predict, show
from parley.sampling import sample
from parley.schema_commands import schema_app
from parley.server.records.plain_json import json_text
from parley.suggestions import suggest
from parley.sweep.commands import add_sweep_commands
from parley.twin import twin_command
from parley.version import __version__

app = typer.Typer(
    name="parley",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click does, and once is enough
    help="Several parties learn one private model. Nobody shows a record, and a ledger accounts "
    "for every release.\n\n"
    "Start with [bold]parley run[/bold] (five hospitals, bundled data), then [bold]parley run "
    "--print-job > job.toml[/bold] and edit. [bold]parley plan[/bold] says what a budget buys "
    "before anybody reads any data.",
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")
app.add_typer(audit_app, name="audit")
app.add_typer(certificate_app, name="certificate")

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


@app.command()
def run(
    job: JobFile = None,
    sets: Sets = None,
    engine: Engine = None,
    parties: Annotated[
        int | None, typer.Option(min=1, help="Number of parties: --set parties.count=N.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to make (default: runs/…).")] = None,
    seed: Seed = None,
    as_json: AsJson = False,
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
    from parley.server.jobs.file import load_job, render_job  # noqa: PLC0415 - start-up: for this command alone
    from parley.server.jobs.section import JobError  # noqa: PLC0415 - start-up: for this command alone

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
            typer.echo(render_job(loaded), nl=False)
            return
    elif job is not None or overrides or out is not None or print_job or audit is not None:
        raise JobError("Expected --resume RUN alone: the run continues with its own job.")
    canaries = 0 if audit is None else _canaries(audit)
    from parley.running import run as run_job  # noqa: PLC0415 - start-up: not for --print-job
    from parley.terminal.progress import RunDisplay  # noqa: PLC0415 - start-up: not for --print-job
    from parley.terminal.result import print_result  # noqa: PLC0415 - start-up: not for --print-job

    with RunDisplay(quiet=quiet) as display:
        result = run_job(
            loaded, out=out, resume=resume, observer=display, canaries=canaries, track=track or ()
        )
    if as_json:
        typer.echo(json_text(result.summary.to_json()))
    else:
        print_result(result)
    if result.summary.status != "complete":
        raise typer.Exit(3 if result.summary.status == "budget-exhausted" else 1)


def _canaries(text: str) -> int:
    name, _, count = text.partition("=")
    if name != "canaries" or not (count.isascii() and count.isdigit() and len(count) < 10):
        raise click.UsageError(f"Expected --audit canaries=K, such as canaries=500, got {text!r}.")
    return int(count)


@app.command()
def plan(
    job: JobFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
    seconds_a_step: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="What a secure sum takes where it will run: for the hours of distributed DP-SGD.",
        ),
    ] = None,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code",
            help="Run the code that the job names, a loss, network, map or algorithm of your own. "
            "Without it such a job is refused, and none of it is run.",
        ),
    ] = False,
) -> None:
    """Say what a budget buys before anybody reads any data: noise, ε by round, ring and grid.

    parties.count and parties.min-records are enough, e.g.
    [bold]parley plan --set parties.count=100 --set parties.min-records=500[/bold]
    """
    from parley.planning import plan as plan_job  # noqa: PLC0415 - start-up: for this command alone
    from parley.server.jobs.file import load_job  # noqa: PLC0415 - start-up: for this command alone

    stated: dict[str, Any] = {"trust_code": trust_code}
    if seconds_a_step is not None:
        stated["seconds_a_step"] = seconds_a_step
    outlook = plan_job(load_job(job, overrides=list(sets or [])), **stated)
    if as_json:
        typer.echo(json_text(outlook.to_json()))
    else:
        from parley.terminal.result import print_outlook  # noqa: PLC0415 - start-up: for this command alone

        print_outlook(outlook)


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
) -> None:
    """Write a run's report.html, also of a run that was interrupted."""
    from parley.report.page import write_report  # noqa: PLC0415 - start-up: altair takes .5 s

    typer.echo(str(write_report(run_folder)))


for command in (predict, show, sample):
    app.command()(command)
add_query_commands(app)
add_sweep_commands(app)
app.command("twin")(twin_command)


def _served_queries() -> Any:
    from parley.analytics.asked import ServedQueries  # noqa: PLC0415 - start-up: for servers alone

    return ServedQueries()


add_deploy_commands(app, questions=_served_queries)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"parley {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Entry point: runs the application and turns errors into one message and a status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show ε shows something else, and the run goes on.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    guard_streams()
    signal.signal(signal.SIGTERM, _stopped)
    try:
        code = app(standalone_mode=False)
    except KeyboardInterrupt:
        _fail("interrupted.", 130)
    except BrokenPipeError:
        # The reader (say `head`) has gone; give Python a place to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        status = _status(error)
        if status is None:
            raise
        _fail(str(error), status)
    sys.exit(code if isinstance(code, int) else 0)


def _stopped(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C and a service manager's stop end a run alike: after the round's last commit.

    `timeout` and others send the signal twice; the second must not end what the first began.
    """
    del number, frame
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    raise KeyboardInterrupt


def _status(error: Exception) -> int | None:
    """The exit status of an expected error, None for a bug (which keeps its traceback)."""

    if isinstance(error, click.ClickException):
        if isinstance(error, click.UsageError):
            suggest(error)
        error.show()
        sys.exit(error.exit_code)
    if isinstance(error, click.Abort):
        if error.__context__ is not None:
            typer.echo(err=True)  # the question's line has no end
        _fail(*_UNANSWERED.get(type(error.__context__), _UNANSWERED[type(None)]))
    return exit_status(error)


_UNANSWERED: dict[type, tuple[str, int]] = {
    type(None): ("the answer was no; nothing was changed.", 1),
    KeyboardInterrupt: ("interrupted.", 130),
    EOFError: (
        "Expected an answer to the question, got the end of the input; nothing was changed. "
        "Answer at a terminal, or say --yes.",
        2,
    ),
}
"""Why a question that was asked has no yes, and the exit status."""


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"parley: {message}", err=True)
    sys.exit(code)
