"""A plan in at most 15 lines of 80 columns: what a budget buys, and what would need less noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.safe_io.plurals import format_noun
from parley.server.records.noise_law_text import get_law_text
from parley.server.records.short_guarantee import format_short_account, list_promise_rows
from parley.server.records.short_layout import Row, format_rows

if TYPE_CHECKING:
    from parley.server.records.plan_summary import PlanSummary


def list_plan_lines(plan: PlanSummary) -> list[str]:
    """Return the lines of a plan."""
    size = (
        f"{plan.parties:,} {format_noun(plan.parties, 'party')} of at least {plan.min_records:,} "
        f"{format_noun(plan.min_records, 'record')}, {plan.model}, {plan.dimension:,} "
        f"{format_noun(plan.dimension, 'parameter')}, {plan.rounds:,} "
        f"{format_noun(plan.rounds, 'round')}"
    )
    return format_rows(
        [
            Row("", f"`parley run` would refuse this job. {plan.refusal}" if plan.refusal else ""),
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
