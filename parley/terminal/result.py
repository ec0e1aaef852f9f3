"""What the terminal shows of a run that ended: the closing table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from parley.client.contract.printable import one_line
from parley.server.records import result_words, words
from parley.server.records.numerals import number
from parley.server.records.synthetic_words import table_measured, table_said
from parley.terminal.screen import Screen
from parley.terminal.tables import plain_table

if TYPE_CHECKING:
    from parley.server.records.guarantee_summary import GuaranteeSummary
    from parley.server.records.run import Run
    from parley.server.records.summary import RunSummary


def print_result(result: Run) -> None:
    """The closing table."""
    console, summary = Screen(), result.summary
    if summary.status != "complete":
        console.print(one_line(result_words.status(summary)), style="yellow")
    _print_measured(console, summary)
    table = plain_table("", "", header=False)
    for name, value in _rows(summary):
        shown = Text(one_line(value), style="bold" if name == "spent" else "")
        table.add_row(Text(name, style="dim"), shown)
    console.print(table)
    # A whole line, which a terminal breaks only to the eye: it is there to be copied.
    console.print(f"run folder  {result.folder}", soft_wrap=True)
    for line in summary.advice:
        console.print(one_line(f"→ {line}"))


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


def _rows(summary: RunSummary) -> Iterator[tuple[str, str]]:
    for of in summary.guarantees:
        yield from _of_guarantee(summary, of)
    for account in summary.data_accounts or ():
        yield "data set", words.data_set(account)
    for name, value in (
        ("bounds", words.bounds(summary)),
        ("DP-SGD", words.join(words.dp_sgd(summary.dp_sgd)) if summary.dp_sgd else ""),
        ("clipped", words.clipped(summary)),
        ("components", words.components(summary)),
        ("features", summary.features),
        ("class weights", result_words.class_weights(summary)),
        ("evaluation", result_words.evaluation(summary)),
        ("test set", result_words.public_test(summary)),
        ("synthetic", table_said(summary)),
        ("self-audit", result_words.self_audit(summary)),
    ):
        if value:
            yield name, value
    yield (
        "parties",
        f"{summary.parties} of at least {summary.min_records} records, "
        f"{summary.rounds_done} rounds, {summary.seconds:.1f} s",
    )
    yield (
        "ledger",
        f"shared: {summary.ledger}"
        if summary.ledger
        else "this run's own; other runs on the same records add to ε (share one: privacy.ledger)",
    )
    yield "sum", words.join(words.secure_sum(summary))


def _of_guarantee(summary: RunSummary, of: GuaranteeSummary) -> Iterator[tuple[str, str]]:
    yield (
        "spent",
        f"{words.spent(of)}, of a budget of {words.budget(of)}{words.charged_by(of)}",
    )
    yield "protects", f"{words.protected(of)}; {words.relation(of)}"
    for name, value, _ in words.accounts(of):
        yield "", f"{name}: {value}" if value else name
    yield "noise", words.join(words.noise(summary, of))
