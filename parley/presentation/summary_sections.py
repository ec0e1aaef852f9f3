"""Build what describes a run, or the cost of a plan: sections of facts, in a fixed order.

The list is built once, from the types. The terminal's tables, the report and a notebook show it.
"""

from __future__ import annotations

from parley.presentation import result_text
from parley.presentation.document import Section, build_fact_section, build_text_section, drop_empty
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.run_summary import RunSummary
from parley.server.records.summary_base import JobSummary
from parley.server.statements.guarantee_text import (
    FIXED_RELEASES_NOTE,
    build_noise_facts,
    build_secure_sum_facts,
    format_accounts,
    format_assumptions,
    format_attack,
    format_bounds,
    format_charged_conversion,
    format_components,
    format_ledger,
    format_promise,
    format_relation,
    format_spent,
)

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


def build_summary_sections(run: RunSummary) -> list[Section]:
    """Build the sections of a run."""
    costs = list_cost_sections(run, "spent", counted=run.clipped_fraction is not None)
    return drop_empty([*costs, *_list_run_sections(run)])


def list_cost_sections(summary: JobSummary, title: str, *, counted: bool) -> list[Section]:
    """Return the sections that a plan and its run share: guarantees, budgets and bounds.

    Args:
        title: what the cost is: charged by a plan, or spent.
        counted: whether the fraction of clipped gradients is released.
    """
    sections = []
    for of in summary.guarantees:
        mark = FIXED_RELEASES_NOTE if of is summary.primary else ""
        sections += _list_guarantee_sections(
            title, of, rounds=summary.rounds, counted=counted, mark=mark if title == "spent" else ""
        )
    if summary.data_accounts:
        from parley.server.statements.data_account_text import format_data_account  # noqa: PLC0415 - spares its code for a run with its own ledger

        accounts = map(format_data_account, summary.data_accounts)
        sections += [build_text_section("data set", text) for text in accounts]
    bounds = format_bounds(summary.record_bounds, summary.primary)
    return [*sections, build_text_section("bounds", bounds)]


def _list_run_sections(run: RunSummary) -> list[Section]:
    return [
        *_list_training_sections(run),
        build_text_section("components", format_components(run)),
        build_text_section("features", run.features or ""),
        build_text_section("class weights", result_text.format_class_weights(run.class_weights)),
        build_text_section("evaluation", result_text.format_evaluation(run)),
        build_text_section("test set", result_text.format_public_test(run)),
        _build_synthetic_section(run),
        build_text_section("self-audit", result_text.format_self_audit(run)),
        build_text_section("parties", result_text.format_parties(run)),
        build_text_section("ledger", format_ledger(run)),
        build_fact_section(SUM, build_secure_sum_facts(run.secure_aggregation)),
    ]


def _list_training_sections(run: RunSummary) -> list[Section]:
    """Build the sections on DP-SGD in the parties; none for other jobs."""
    if run.dp_sgd is None and run.clipped_fraction is None:
        return []
    from parley.server.statements.dp_sgd_text import build_dp_sgd_facts, format_clipped_fraction  # noqa: PLC0415 - spares its code for other jobs

    return [
        build_fact_section(TRAINING, () if run.dp_sgd is None else build_dp_sgd_facts(run.dp_sgd)),
        build_text_section("clipped", format_clipped_fraction(run)),
    ]


def _build_synthetic_section(run: RunSummary) -> Section:
    """Build the section on synthetic rows; without text if a run makes none."""
    if run.synthetic is None:
        return build_text_section("synthetic", "")
    from parley.presentation.synthetic_text import format_table  # noqa: PLC0415 - spares its code for a run without rows

    return build_text_section("synthetic", format_table(run, run.synthetic))


def _list_guarantee_sections(
    title: str, guarantee: GuaranteeSummary, *, rounds: int, counted: bool, mark: str = ""
) -> list[Section]:
    """Build the sections of a guarantee: its cost, its adversaries, and its noise.

    The noise is that of `build_noise_facts`.

    Args:
        mark: for which analysts the ε spent so far holds.
    """
    cost = f"{format_spent(guarantee)}{format_charged_conversion(guarantee)}"
    return [
        build_text_section("promise", format_promise(guarantee)),
        build_text_section(title, f"{cost}, {mark}" if mark else cost),
        build_text_section("protects", f"{guarantee.unit.words}; {format_relation(guarantee)}"),
        *(
            build_text_section("" if at else "against", each)
            for at, each in enumerate(format_accounts(guarantee))
        ),
        build_text_section("attacker", format_attack(guarantee)),
        build_text_section("assuming", format_assumptions(guarantee)),
        build_fact_section(NOISE, build_noise_facts(guarantee, rounds=rounds, counted=counted)),
    ]
