"""Describe the error that ended a command: one message and an exit status.

`parley.cli` imports this module only for an error.
"""

from __future__ import annotations

import sys

import click
import typer

from parley.exit_status import INTERNAL_ERROR, get_exit_status
from parley.incomplete_bytecode import describe_incomplete_bytecode
from parley.safe_io.os_errors import describe_error


def describe_failure(error: Exception) -> tuple[str, int]:
    """Return an error's message and exit status; print a usage error, and end."""
    if (refused := _describe_usage_error(error)) is not None:
        return refused
    status = get_exit_status(error)
    if status is None:
        return _report_internal_error(error), INTERNAL_ERROR
    return describe_error(error), status


def _report_internal_error(error: Exception) -> str:
    """Write a crash report and return the line for the terminal.

    Neither has the text of the error, because it may contain values of records.
    """
    from parley.crash_report import write_crash_report  # noqa: PLC0415 - only for a bug

    file = write_crash_report(error)
    details = f" with {file}" if file else ""
    return f"internal error ({type(error).__name__}). Please report it{details}."


def _describe_usage_error(error: Exception) -> tuple[str, int] | None:
    """Return the message and status of what click turned into an abort; None for other errors.

    Print any other error of the command line, and end.
    """
    if isinstance(error, click.ClickException):
        if isinstance(error, click.UsageError):
            from parley.suggestions import add_suggestion  # noqa: PLC0415 - only for a wrong command

            add_suggestion(error)
        error.show()
        sys.exit(error.exit_code)
    if isinstance(error, click.Abort):
        # click raises Abort for each EOFError, also for one of an import.
        if incomplete := describe_incomplete_bytecode(error.__context__):
            return incomplete, 1
        if error.__context__ is not None:
            typer.echo(err=True)  # end the question's line
        return _NO_ANSWER.get(type(error.__context__), _NO_ANSWER[type(None)])
    return None


_NO_ANSWER: dict[type, tuple[str, int]] = {
    type(None): ("the answer was no; nothing was changed.", 1),
    KeyboardInterrupt: ("interrupted.", 130),
    EOFError: (
        "Expected an answer to the question, got the end of the input. Nothing was changed. Answer "
        "at a terminal, or use --yes.",
        2,
    ),
}
"""Cause of a question without a yes → message and exit status."""
