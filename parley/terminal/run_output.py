"""Print plans and ended runs in the terminal: short, or as sections of facts with tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from parley.privacy.accounting.rounding import format_rounded_up
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.server.records import guarantee_text, result_text, summary_sections
from parley.server.records.number_format import format_epsilon
from parley.server.records.result_text import list_table_metrics
from parley.server.records.short_run import list_run_lines
from parley.terminal.terminal_screen import Screen, build_plain_table

if TYPE_CHECKING:
    from parley.server.records.guarantee_facts import AccountAfterRound
    from parley.server.records.plan_parts import NoiseAlternative, SizeAlternative
    from parley.server.records.plan_summary import PlanSummary
if TYPE_CHECKING:
    from parley.server.records.run_result import RunResult
    from parley.server.records.run_summary import RunSummary


def print_short_plan(plan: PlanSummary) -> None:
    """Print a plan in at most 15 lines."""
    _print_lines(str(plan).splitlines())


def print_short_result(result: RunResult) -> None:
    """Print a run in at most 15 lines."""
    _print_lines(list_run_lines(result.summary, result.folder))


def _print_lines(lines: Iterable[str]) -> None:
    # The lines are broken already: a narrow terminal breaks them only to the eye, so that paths in
    # them can be copied.
    console = Screen()
    for line in lines:
        console.print(line, soft_wrap=True)


def print_plan_summary(outlook: PlanSummary) -> None:
    """Print a plan as tables."""
    console = Screen()
    # Below this the tables' numbers would be cut; a narrow terminal wraps the lines instead.
    console.width = max(console.width, 88)
    title = outlook.algorithm_title or outlook.algorithm
    console.print(
        f"{title}, {outlook.model}: m = {outlook.parties} {format_noun(outlook.parties, 'party')} "
        f"of at least n = {outlook.min_records} {format_noun(outlook.min_records, 'record')} "
        f"({outlook.min_records_from}), d = {outlook.dimension}, T = {outlook.rounds} "
        f"{format_noun(outlook.rounds, 'round')}\n"
    )
    console.print(build_section_table(outlook.build_sections()))
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
    console.print(f"ε after each round: {guarantee_text.FIXED_RELEASES_NOTE}.\n")
    if outlook.alternatives is not None:
        _print_alternatives(console, outlook.alternatives, (outlook.parties, outlook.min_records))


def _print_offers(console: Screen, title: str, offers: Mapping[str, NoiseAlternative]) -> None:
    table = build_plain_table(
        "", "scale", "E‖noise‖ a round", "ε charged", "by", left=1, title=title
    )
    for name, offer in offers.items():
        if offer.refused is not None:
            table.add_row(name, Text("refused", style="dim"), "", "", "")
            continue
        table.add_row(
            name,
            f"{offer.scale:.6g}",
            f"{offer.expected_norm:.6g}",
            format_epsilon(offer.epsilon_charged),
            offer.conversion,
        )
    console.print(table)
    for name, offer in offers.items():
        if offer.refused is not None:
            console.print(f"  {name}: {offer.refused}", style="dim")
    console.print()


def _print_rounds(console: Screen, rounds: Sequence[AccountAfterRound], scope: str = "") -> None:
    conversions = list(rounds[-1].epsilon)
    names = ("round", "ρ (zCDP)", *conversions, "charged")
    table = build_plain_table(*names, left=0, title=f"ε after each round{scope}")
    step = max(1, len(rounds) // 10)
    shown = [row for place, row in enumerate(rounds, 1) if place % step == 0 or place == 1]
    if shown[-1] is not rounds[-1]:
        shown.append(rounds[-1])
    for row in shown:
        table.add_row(
            str(row.round),
            "–" if row.rho is None else format_rounded_up(row.rho, 4),
            *(format_epsilon(row.epsilon[name]) for name in conversions),
            format_epsilon(row.epsilon_charged),
        )
    console.print(table)
    console.print()


def _print_alternatives(
    console: Screen, rows: Iterable[SizeAlternative], own: tuple[int, int]
) -> None:
    names = ("parties", "records each", "Δ₂", "scale", "E‖noise‖")
    table = build_plain_table(*names, left=0, title="Other federations (same job)")
    for row in rows:
        table.add_row(
            f"{row.parties:,}",
            f"{row.min_records:,}",
            *(f"{value:.4g}" for value in (row.sensitivity, row.scale, row.expected_norm)),
            style="bold" if (row.parties, row.min_records) == own else None,
        )
    console.print(table)


def print_result(result: RunResult) -> None:
    """Print the closing table."""
    console, summary = Screen(), result.summary
    if summary.status != "complete":
        console.print(to_one_line(result_text.format_status(summary)), style="yellow")
    if summary.verdict:
        mark = " *" if "verdict" in summary.simulation_only else ""
        console.print(to_one_line(f"{summary.verdict}{mark}"), style="yellow")
    _print_measured(console, summary)
    console.print(build_section_table(summary_sections.build_run_sections(summary)))
    # A whole line, which a terminal breaks only to the eye: it is there to be copied.
    console.print(f"run folder  {result.folder}", soft_wrap=True)
    for line in summary.advice:
        console.print(to_one_line(f"→ {line}"))


def build_section_table(sections: Iterable[summary_sections.SummarySection]) -> Table:
    """Return one row per section: title and brief facts. Promises and costs are emphasised."""
    table = build_plain_table("", "", header=False)
    for each in sections:
        style = "bold" if each.title in {"promise", "spent", "charged"} else ""
        table.add_row(Text(each.title, style="dim"), Text(to_one_line(each.line), style=style))
    return table


def _print_measured(console: Screen, summary: RunSummary) -> None:
    """Print what only a simulation can measure."""
    rows = (
        result_text.list_model_metrics(summary)
        + result_text.list_evaluation_metrics(summary)
        + list_table_metrics(summary)
    )
    if not rows:
        return
    table = build_plain_table("", "private", "non-private", left=1)
    for row in rows:
        table.add_row(f"{row.name} *", row.private, row.non_private)
    console.print(table)
    console.print("* simulation only: a real run would have to release each figure, and pay for it")
