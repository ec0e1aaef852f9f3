"""What the terminal shows of a run that ended: what was measured, and its sections of facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from parley.client.contract.printable import one_line
from parley.server.records import result_words, sections
from parley.server.records.numerals import number
from parley.server.records.synthetic_words import table_measured
from parley.terminal.screen import Screen
from parley.terminal.tables import plain_table

if TYPE_CHECKING:
    from parley.server.records.run import Run
    from parley.server.records.summary import RunSummary


def print_result(result: Run) -> None:
    """The closing table."""
    console, summary = Screen(), result.summary
    if summary.status != "complete":
        console.print(one_line(result_words.status(summary)), style="yellow")
    _print_measured(console, summary)
    console.print(section_table(sections.of_run(summary)))
    # A whole line, which a terminal breaks only to the eye: it is there to be copied.
    console.print(f"run folder  {result.folder}", soft_wrap=True)
    for line in summary.advice:
        console.print(one_line(f"→ {line}"))


def section_table(shown: Iterable[sections.Section]) -> Table:
    """A row each: its title and its brief facts; what was paid stands out."""
    table = plain_table("", "", header=False)
    for each in shown:
        style = "bold" if each.title in {"spent", "charged"} else ""
        table.add_row(Text(each.title, style="dim"), Text(one_line(each.line), style=style))
    return table


def _print_measured(console: Screen, summary: RunSummary) -> None:
    """What only a simulation may know."""
    rows = result_words.measured(summary) + result_words.judged(summary) + table_measured(summary)
    if not rows:
        return
    table = plain_table("", "private", "non-private", left=1)
    for row in rows:
        table.add_row(f"{row.name} *", row.private, row.non_private)
    console.print(table)
    console.print("* simulation only: a real run would have to release each figure, and pay for it")
    if summary.majority_accuracy is not None:
        console.print(
            f"  always answering the commonest label: {number(summary.majority_accuracy, 4)}"
        )
