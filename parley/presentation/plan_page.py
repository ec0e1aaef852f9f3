"""Build the document of a plan, and its short form in at most 15 lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from parley.presentation.document import Document, Section, Table, Text, build_section
from parley.presentation.plan_sections import build_plan_sections
from parley.presentation.short_guarantee import format_short_account, list_promise_rows
from parley.presentation.short_layout import Row, format_rows
from parley.privacy.accounting.rounding import format_rounded_up
from parley.safe_io.plurals import format_noun
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.plan_summary import PlanSummary
from parley.server.records.plan_summary_parts import NoiseAlternative, SizeAlternative
from parley.server.statements.guarantee_text import FIXED_RELEASES_NOTE
from parley.server.statements.noise_law_text import get_law_text
from parley.server.statements.number_format import format_epsilon


def build_plan_document(plan: PlanSummary) -> Document:
    """Build the document of a plan: cost, noise and its alternatives, ε by round."""
    title = plan.algorithm_title or plan.algorithm
    records = f"{plan.min_records} {format_noun(plan.min_records, 'record')}"
    held = f" of at least n = {records} ({plan.min_records_from})" if plan.min_records_from else ""
    return Document(
        headline=(
            f"{title}, {plan.model}: m = {plan.parties} {format_noun(plan.parties, 'party')}"
            f"{held}, d = {plan.dimension}, T = {plan.rounds} "
            f"{format_noun(plan.rounds, 'round')}"
        ),
        notices=[refusal] if (refusal := format_refusal(plan)) else (),
        sections=[*build_plan_sections(plan), *_list_tables(plan)],
    )


def _list_tables(plan: PlanSummary) -> Iterator[Section]:
    if plan.calibrations:
        yield _build_noise_section("Gaussian, by calibration", plan.calibrations)
    if plan.noise_laws:
        yield _build_noise_section("Noise laws", plan.noise_laws)
    several = len(plan.guarantees) > 1
    for of in plan.guarantees:
        scope = f" (one {of.unit})" if several else ""
        yield build_section(f"ε after each round{scope}", _build_round_table(of))
    yield build_section("", Text(f"ε after each round: {FIXED_RELEASES_NOTE}.", "fine"))
    if plan.alternatives is not None:
        yield build_section(
            "Other federations (same job)", _build_federation_table(plan.alternatives)
        )


def _build_noise_section(title: str, offers: Mapping[str, NoiseAlternative]) -> Section:
    rows, refused = [], []
    for name, offer in offers.items():
        if offer.refused is None:
            noise = f"{offer.scale:.6g}", f"{offer.expected_norm:.6g}"
            charged = format_epsilon(offer.epsilon_charged)
            rows.append([name, *noise, charged, offer.conversion or ""])
        else:
            rows.append([name, "refused", "", "", ""])
            refused.append(Text(f"{name}: {offer.refused}", "fine"))
    table = Table(head=["", "scale", "E‖noise‖ a round", "ε charged", "by"], rows=rows)
    return build_section(title, table, *refused)


def _build_round_table(guarantee: GuaranteeSummary) -> Table:
    rounds = guarantee.epsilon_by_round or ()
    conversions = list(rounds[-1].epsilon)
    step = max(1, len(rounds) // 10)
    shown = [row for place, row in enumerate(rounds, 1) if place % step == 0 or place == 1]
    if shown[-1] is not rounds[-1]:
        shown.append(rounds[-1])
    rows = []
    for row in shown:
        rho = "–" if row.rho is None else format_rounded_up(row.rho, 4)
        costs = (*(row.epsilon[name] for name in conversions), row.epsilon_charged)
        rows.append([str(row.round), rho, *map(format_epsilon, costs)])
    return Table(head=["round", "ρ (zCDP)", *conversions, "charged"], rows=rows)


def _build_federation_table(rows: Sequence[SizeAlternative]) -> Table:
    cells = []
    for row in rows:
        noise = (f"{value:.4g}" for value in (row.sensitivity, row.scale, row.expected_norm))
        cells.append([f"{row.parties:,}", f"{row.min_records:,}", *noise])
    return Table(head=["parties", "records each", "Δ₂", "scale", "E‖noise‖"], rows=cells)


def format_refusal(plan: PlanSummary) -> str:
    """Return why a run would refuse the job; empty if it would not."""
    return f"`parley run` would refuse this job. {plan.refusal}" if plan.refusal else ""


def list_plan_lines(plan: PlanSummary) -> list[str]:
    """Return a plan in at most 15 lines."""
    records = f"{plan.min_records:,} {format_noun(plan.min_records, 'record')}"
    held = f" of at least {records}" if plan.min_records_from else ""
    size = (
        f"{plan.parties:,} {format_noun(plan.parties, 'party')}{held}, {plan.model}, "
        f"{plan.dimension:,} {format_noun(plan.dimension, 'parameter')}, {plan.rounds:,} "
        f"{format_noun(plan.rounds, 'round')}"
    )
    return format_rows(
        [
            Row("", format_refusal(plan)),
            Row("", size),
            *list_promise_rows(plan.guarantees, planned=True),
            *(Row("Ledger", format_short_account(each)) for each in plan.data_accounts or ()),
            Row("Time", _format_hours(plan), rank=2),
            Row("Less noise", _format_less_noise(plan), rank=4),
        ]
    )


def _format_hours(plan: PlanSummary) -> str:
    """Return how long steps take that are secure sums; empty for other plans."""
    steps = plan.distributed
    if steps is None:
        return ""
    return f"{steps.steps:,} secure sums, about {steps.hours:.2g} h among real parties"


def _format_less_noise(plan: PlanSummary) -> str:
    """Return by which larger federation the noise shrinks; empty if that was not computed."""
    scales = {(of.parties, of.min_records): of.scale for of in plan.alternatives or ()}
    now = scales.get((plan.parties, plan.min_records))
    more = scales.get((plan.parties, 4 * plan.min_records))
    wide = scales.get((4 * plan.parties, plan.min_records))
    if now is None or more is None or wide is None:
        return ""
    symbol = get_law_text(plan.primary.noise.law).get_symbol(counted=False)
    records, parties = "4x the records per party", f"{4 * plan.parties:,} parties"
    least, most, present = (f"{each:.3g}" for each in (more, wide, now))
    if least == most:
        return f"{records}, or {parties}: {symbol} {least}, not {present}"
    return f"{records}: {symbol} {least}; {parties}: {symbol} {most}; now {present}"
