"""What the terminal shows of a run that ended: what was measured, and its sections of facts.

Also here: what the terminal shows of a plan: its sections of facts, and tables of what else could
be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from parley.privacy.accounting.rounding import shown_up
from parley.safe_io.plurals import noun
from parley.safe_io.printable_text import one_line
from parley.server.records import guarantee_text, result_text, summary_sections
from parley.server.records.number_format import epsilon_text
from parley.server.records.result_text import table_measured
from parley.terminal.terminal_screen import Screen, plain_table

if TYPE_CHECKING:
    from parley.server.records.guarantee_facts import AfterRound
    from parley.server.records.plan_parts import Alternative, Offer
    from parley.server.records.plan_summary import Outlook
if TYPE_CHECKING:
    from parley.server.records.run_result import Run
    from parley.server.records.run_summary import RunSummary


def print_outlook(outlook: Outlook) -> None:
    """A plan, as tables."""
    console = Screen()
    # Below this the tables' numbers would be cut; a narrow terminal wraps the lines instead.
    console.width = max(console.width, 88)
    title = outlook.algorithm_title or outlook.algorithm
    console.print(
        f"{title}, {outlook.model}: m = {outlook.parties} {noun(outlook.parties, 'party')} of "
        f"at least n = {outlook.min_records} "
        f"{noun(outlook.min_records, 'record')} ({outlook.min_records_from}), "
        f"d = {outlook.dimension}, T = {outlook.rounds} {noun(outlook.rounds, 'round')}\n"
    )
    console.print(section_table(outlook.sections()))
    console.print()
    for title, offers in (
        ("Gaussian, by calibration", outlook.calibrations),
        ("Noise laws", outlook.noise_laws),
    ):
        if offers:
            _print_offers(console, title, offers)
    for of in outlook.guarantees:
        scope = f" (one {of.unit})" if len(outlook.guarantees) > 1 else ""
        _print_rounds(console, of.epsilon_by_round, scope)
    console.print(f"ε after each round: {guarantee_text.FIXED}.\n")
    if outlook.alternatives is not None:
        _print_alternatives(console, outlook.alternatives, (outlook.parties, outlook.min_records))


def _print_offers(console: Screen, title: str, offers: Mapping[str, Offer]) -> None:
    table = plain_table("", "scale", "E‖noise‖ a round", "ε charged", "by", left=1, title=title)
    for name, offer in offers.items():
        if offer.refused is not None:
            table.add_row(name, Text("refused", style="dim"), "", "", "")
            continue
        table.add_row(
            name,
            f"{offer.scale:.6g}",
            f"{offer.expected_norm:.6g}",
            epsilon_text(offer.epsilon_charged),
            offer.conversion,
        )
    console.print(table)
    for name, offer in offers.items():
        if offer.refused is not None:
            console.print(f"  {name}: {offer.refused}", style="dim")
    console.print()


def _print_rounds(console: Screen, rounds: Sequence[AfterRound], scope: str = "") -> None:
    conversions = list(rounds[-1].epsilon)
    names = ("round", "ρ (zCDP)", *conversions, "charged")
    table = plain_table(*names, left=0, title=f"ε after each round{scope}")
    step = max(1, len(rounds) // 10)
    shown = [row for place, row in enumerate(rounds, 1) if place % step == 0 or place == 1]
    if shown[-1] is not rounds[-1]:
        shown.append(rounds[-1])
    for row in shown:
        table.add_row(
            str(row.round),
            "–" if row.rho is None else shown_up(row.rho, 4),
            *(epsilon_text(row.epsilon[name]) for name in conversions),
            epsilon_text(row.epsilon_charged),
        )
    console.print(table)
    console.print()


def _print_alternatives(console: Screen, rows: Iterable[Alternative], own: tuple[int, int]) -> None:
    names = ("parties", "records each", "Δ₂", "scale", "E‖noise‖")
    table = plain_table(*names, left=0, title="Other federations (same job)")
    for row in rows:
        table.add_row(
            f"{row.parties:,}",
            f"{row.min_records:,}",
            *(f"{value:.4g}" for value in (row.sensitivity, row.scale, row.expected_norm)),
            style="bold" if (row.parties, row.min_records) == own else None,
        )
    console.print(table)


def print_result(result: Run) -> None:
    """The closing table."""
    console, summary = Screen(), result.summary
    if summary.status != "complete":
        console.print(one_line(result_text.status(summary)), style="yellow")
    if summary.verdict:
        mark = " *" if "verdict" in summary.simulation_only else ""
        console.print(one_line(f"{summary.verdict}{mark}"), style="yellow")
    _print_measured(console, summary)
    console.print(section_table(summary_sections.of_run(summary)))
    # A whole line, which a terminal breaks only to the eye: it is there to be copied.
    console.print(f"run folder  {result.folder}", soft_wrap=True)
    for line in summary.advice:
        console.print(one_line(f"→ {line}"))


def section_table(shown: Iterable[summary_sections.Section]) -> Table:
    """A row each: its title and its brief facts; what was promised and paid stands out."""
    table = plain_table("", "", header=False)
    for each in shown:
        style = "bold" if each.title in {"promise", "spent", "charged"} else ""
        table.add_row(Text(each.title, style="dim"), Text(one_line(each.line), style=style))
    return table


def _print_measured(console: Screen, summary: RunSummary) -> None:
    """What only a simulation may know."""
    rows = result_text.measured(summary) + result_text.judged(summary) + table_measured(summary)
    if not rows:
        return
    table = plain_table("", "private", "non-private", left=1)
    for row in rows:
        table.add_row(f"{row.name} *", row.private, row.non_private)
    console.print(table)
    console.print("* simulation only: a real run would have to release each figure, and pay for it")
