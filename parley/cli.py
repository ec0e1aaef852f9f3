"""Run the command line: start and end of the process, and one clear message per error.

`parley.exit_status.EXIT_CODES` lists the exit codes.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Annotated, NoReturn

import click
import typer
from typer._completion_classes import completion_init

from parley.command_options import COMPLETION_VARIABLE
from parley.command_table import CommandTable
from parley.safe_io.deprecations import rename_options
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.printable_text import guard_streams
from parley.version import __version__

app = typer.Typer(
    name="parley",
    cls=CommandTable,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click does it already
    help="Train one model on the records of several parties, with differential privacy and secure "
    "aggregation. No record leaves its party.\n\nStart with "
    "[bold]parley run[/bold] (five hospitals, bundled data), then "
    "[bold]parley run --print-job > job.toml[/bold] and edit. [bold]parley plan[/bold] shows "
    "what a job costs before any data are read.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"parley {__version__}")
        raise typer.Exit


@app.callback()
def _accept_root_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the application and turn errors into one message and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show ε shows a replacement; the run continues.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    guard_streams()
    warnings.showwarning = _print_warning
    signal.signal(signal.SIGTERM, _handle_termination)
    if COMPLETION_VARIABLE in os.environ:
        completion_init()
    try:
        code = app(_read_arguments(), standalone_mode=False, prog_name="parley")
    except KeyboardInterrupt:
        _fail("interrupted.", 130)
    except BrokenPipeError:
        # The reader (for example `head`) has ended. Give Python a place to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        # A full disk would cut off the files of the modules that are imported for the message.
        sys.dont_write_bytecode = True
        from parley.command_failures import describe_failure  # noqa: PLC0415 - start-up: only for an error

        _fail(*describe_failure(error))
    sys.exit(code if isinstance(code, int) else 0)


def _read_arguments() -> list[str]:
    """Return the command line with current options; an option that is over is a usage error."""
    with translate_errors(ValueError, click.UsageError):
        return rename_options(sys.argv[1:])


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line, without the place in Parley's code that raised it."""
    typer.echo(f"parley: warning: {message}", err=True)


def _handle_termination(number: int, frame: FrameType | None) -> NoReturn:
    """End a run on a service manager's stop as on Ctrl-C, after the round's last commit.

    `timeout` and other tools send the signal twice. The second must not cut off the orderly end.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"parley: {message}", err=True)
    sys.exit(code)
