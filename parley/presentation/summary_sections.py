"""Build what describes a job, planned or run: a list of sections of facts, in a fixed order.

The list is built once, from the types. The terminal's tables, the report and a notebook show it.
"""

from __future__ import annotations

from parley.presentation import result_text
from parley.presentation.document import (
    Section,
    build_fact_section,
    build_text_section,
    drop_empty,
)
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.plan_summary import PlanSummary
from parley.server.records.run_summary import RunSummary
from parley.server.statements import guarantee_text

NOISE, TRAINING, SUM = "noise", "DP-SGD", "secure sum"
"""Titles of the sections that the report explains in paragraphs."""
GUARANTEE_TITLES = {
    "promise",
    "spent",
    "charged",
    "protects",
    "against",
    "attacker",
    "assuming",
    "",
}
"""Titles of a guarantee's sections, without its noise."""


def build_summary_sections(summary: PlanSummary | RunSummary) -> list[Section]:
    """Build the sections of a plan or of a run: a plan is the summary before round 1."""
    plan = summary if isinstance(summary, PlanSummary) else None
    counted = _counts_clipped(summary)
    sections = [build_text_section("chosen", "; ".join(plan.chosen if plan else ()))]
    for of in summary.guarantees:
        marked = of is summary.primary and plan is None
        sections += _list_guarantee_sections(
            "charged" if plan else "spent",
            of,
            rounds=summary.rounds,
            counted=counted,
            mark=guarantee_text.FIXED_RELEASES_NOTE if marked else "",
        )
    sections += [
        build_text_section("data set", guarantee_text.format_data_account(each))
        for each in summary.data_accounts or ()
    ]
    bounds = guarantee_text.format_bounds(summary.record_bounds, summary.primary)
    sections.append(build_text_section("bounds", bounds))
    if isinstance(summary, PlanSummary):
        return drop_empty([*sections, *_list_plan_sections(summary)])
    return drop_empty([*sections, *_list_run_sections(summary)])


def _counts_clipped(summary: PlanSummary | RunSummary) -> bool:
    """Return whether the fraction of clipped gradients is released."""
    if isinstance(summary, RunSummary):
        return summary.clipped_fraction is not None
    return summary.dp_sgd is not None and bool(summary.dp_sgd.clipped_fraction_share)


def _list_plan_sections(plan: PlanSummary) -> list[Section]:
    moved = guarantee_text.build_number_facts(
        {"Δ₂ of the average": plan.sensitivity, "G =": plan.lipschitz, "λ =": plan.lambda_}
    )
    weights = result_text.format_class_weights(plan.class_weights)
    return [
        build_fact_section("sensitivity", moved),
        build_fact_section(
            TRAINING,
            () if plan.dp_sgd is None else guarantee_text.build_training_facts(plan.dp_sgd),
        ),
        build_fact_section("steps", guarantee_text.build_distributed_facts(plan.distributed)),
        build_text_section("class weights", weights),
        build_text_section("evaluation", result_text.format_planned_evaluation(plan.evaluation)),
        build_text_section("synthetic", result_text.format_planned_synthetic(plan.synthetic)),
        build_text_section("simulation", result_text.format_planned_simulation(plan.simulation)),
        build_text_section("ledger", plan.data_note or ""),
        build_fact_section(SUM, guarantee_text.build_grid_facts(plan.grid)),
    ]


def _list_run_sections(run: RunSummary) -> list[Section]:
    return [
        build_fact_section(
            TRAINING, () if run.dp_sgd is None else guarantee_text.build_dp_sgd_facts(run.dp_sgd)
        ),
        build_text_section("clipped", guarantee_text.format_clipped_fraction(run)),
        build_text_section("components", guarantee_text.format_components(run)),
        build_text_section("features", run.features or ""),
        build_text_section("class weights", result_text.format_class_weights(run.class_weights)),
        build_text_section("evaluation", result_text.format_evaluation(run)),
        build_text_section("test set", result_text.format_public_test(run)),
        build_text_section("synthetic", result_text.format_table(run)),
        build_text_section("self-audit", result_text.format_self_audit(run)),
        build_text_section("parties", result_text.format_parties(run)),
        build_text_section("ledger", guarantee_text.format_ledger(run)),
        build_fact_section(SUM, guarantee_text.build_secure_sum_facts(run.secure_aggregation)),
    ]


def _list_guarantee_sections(
    title: str, guarantee: GuaranteeSummary, *, rounds: int, counted: bool, mark: str = ""
) -> list[Section]:
    """Build the sections of a guarantee: its cost, its adversaries, and its noise.

    The noise is that of `guarantee_text.build_noise_facts`.

    Args:
        mark: for which analysts the ε spent so far holds.
    """
    cost = (
        f"{guarantee_text.format_spent(guarantee)}"
        f"{guarantee_text.format_charged_conversion(guarantee)}"
    )
    return [
        build_text_section("promise", guarantee_text.format_promise(guarantee)),
        build_text_section(title, f"{cost}, {mark}" if mark else cost),
        build_text_section(
            "protects", f"{guarantee.unit.words}; {guarantee_text.format_relation(guarantee)}"
        ),
        *(
            build_text_section("" if at else "against", each)
            for at, each in enumerate(guarantee_text.format_accounts(guarantee))
        ),
        build_text_section("attacker", guarantee_text.format_attack(guarantee)),
        build_text_section("assuming", guarantee_text.format_assumptions(guarantee)),
        build_fact_section(
            NOISE, guarantee_text.build_noise_facts(guarantee, rounds=rounds, counted=counted)
        ),
    ]
