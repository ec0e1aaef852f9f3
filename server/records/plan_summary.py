"""Define the summary of a plan, which `parley plan` prints before any data is read.

Numbers are for the *average* over the parties, in the model's own units and without the grid,
unless a name states otherwise. The grid's share is in `grid.inflation`; the run charges it.
"""

from __future__ import annotations

from html import escape
from typing import Literal

from pydantic import Field

from parley.privacy.accounting.rounding import format_exact
from parley.safe_io.plurals import format_noun
from parley.server.records import guarantee_text, result_text
from parley.server.records.guarantee_facts import DataAccount, PlannedGuarantee, RecordBounds
from parley.server.records.json_record import JsonRecord
from parley.server.records.noise_law_text import get_law_text
from parley.server.records.plan_parts import (
    GridSummary,
    NoiseAlternative,
    PlannedDpSgd,
    PlannedEvaluation,
    PlannedSecureSteps,
    PlannedSimulation,
    PlannedSynthetic,
    SizeAlternative,
)
from parley.server.records.result_text import format_planned_synthetic
from parley.server.records.short_guarantee import format_short_account, list_promise_rows
from parley.server.records.short_layout import Row, format_rows
from parley.server.records.summary_sections import (
    SUM,
    TRAINING,
    SummarySection,
    build_guarantee_sections,
    build_text_section,
    drop_empty,
)


class PlanSummary(JsonRecord):
    """What a job will cost and release.

    Attributes:
        chosen: what a rule chose, and from which public facts, one line each.
        min_records_from: source of that number, in words.
        lipschitz, lambda_, sensitivity: G, λ and Δ₂ of the average; absent if no objective is
            solved under noise on the sum, as are `calibrations`, `noise_laws` and `alternatives`.
        data_accounts: accounts of the job's data in its ledger, by their name there.
        refusal: why a run of this job would be refused; absent if it would not.
    """

    format: Literal[2] = 2
    algorithm: str
    algorithm_title: str = ""
    model: str
    dimension: int
    parties: int
    min_records: int
    min_records_from: str
    rounds: int
    chosen: tuple[str, ...] = ()
    guarantees: tuple[PlannedGuarantee, ...]
    class_weights: tuple[float, ...] | None = None
    lipschitz: float | None = None
    lambda_: float | None = Field(default=None, alias="lambda")
    sensitivity: float | None = None
    dp_sgd: PlannedDpSgd | None = None
    distributed: PlannedSecureSteps | None = None
    simulation: PlannedSimulation | None = None
    synthetic: PlannedSynthetic | None = None
    calibrations: dict[str, NoiseAlternative] | None = None
    noise_laws: dict[str, NoiseAlternative] | None = None
    evaluation: PlannedEvaluation | None = None
    grid: GridSummary
    alternatives: tuple[SizeAlternative, ...] | None = None
    record_bounds: RecordBounds | None = None
    data_accounts: tuple[DataAccount, ...] | None = None
    data_note: str | None = None
    refusal: str | None = None

    @property
    def primary(self) -> PlannedGuarantee:
        """The guarantee for the job's own ε and δ."""
        return self.guarantees[0]

    def build_sections(self) -> list[SummarySection]:
        """Return the sections of the summary, in order."""
        counted = self.dp_sgd is not None and bool(self.dp_sgd.clipped_fraction_share)
        found = [build_text_section("chosen", "; ".join(self.chosen))]
        for of in self.guarantees:
            found += build_guarantee_sections("charged", of, rounds=self.rounds, counted=counted)
        found += [
            build_text_section("data set", guarantee_text.format_data_account(each))
            for each in self.data_accounts or ()
        ]
        moved = guarantee_text.build_number_facts(
            {"Δ₂ of the average": self.sensitivity, "G =": self.lipschitz, "λ =": self.lambda_}
        )
        found += [
            build_text_section(
                "bounds", guarantee_text.format_bounds(self.record_bounds, self.primary)
            ),
            SummarySection("sensitivity", moved),
            SummarySection(
                TRAINING,
                () if self.dp_sgd is None else guarantee_text.build_training_facts(self.dp_sgd),
            ),
            SummarySection("steps", guarantee_text.build_distributed_facts(self.distributed)),
            build_text_section(
                "class weights", result_text.format_class_weights(self.class_weights)
            ),
            build_text_section(
                "evaluation", result_text.format_planned_evaluation(self.evaluation)
            ),
            build_text_section("synthetic", format_planned_synthetic(self.synthetic)),
            build_text_section(
                "simulation", result_text.format_planned_simulation(self.simulation)
            ),
            build_text_section("ledger", self.data_note or ""),
            SummarySection(SUM, guarantee_text.build_grid_facts(self.grid)),
        ]
        return drop_empty(found)

    def __repr__(self) -> str:
        budget = format_exact(self.primary.epsilon_budget)
        return (
            f"<Plan {self.model.rpartition(':')[2]}, {self.parties} "
            f"{format_noun(self.parties, 'party')}, epsilon={budget}, {self.rounds} "
            f"{format_noun(self.rounds, 'round')}>"
        )

    def __str__(self) -> str:
        return "\n".join(_list_plan_lines(self))

    def _repr_html_(self) -> str:
        """Return the lines that the terminal prints."""
        return f"<pre>{escape(str(self))}</pre>"


def _list_plan_lines(plan: PlanSummary) -> list[str]:
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
