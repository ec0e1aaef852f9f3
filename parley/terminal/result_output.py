"""Print runs that ended."""

from __future__ import annotations

from parley.presentation.page_registry import PAGES
from parley.presentation.short_run import list_run_lines
from parley.server.records.run_result import RunResult
from parley.terminal.terminal_screen import print_lines


def print_result(result: RunResult, *, verbose: bool) -> None:
    """Print a run that ended: its overview, or at most 15 lines."""
    if verbose:
        from parley.terminal.document_output import print_document  # noqa: PLC0415 - only with -v

        print_document(PAGES["overview"](result.summary, result.folder))
    else:
        print_lines(list_run_lines(result.summary, result.folder))
