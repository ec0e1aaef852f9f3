"""Build what describes a job, planned or run: a list of sections of facts, in a fixed order.

The list is built once, from the types. The terminal's tables, the report, a notebook and the
model's statement show it.

    >>> SummarySection("noise",
    ...     (Fact("scale", "0.05"), Fact("calibration", "exact", brief=False))).line
    'scale 0.05'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from parley.server.records import guarantee_text, result_text
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.guarantee_text import Fact, join_facts
from parley.server.records.result_text import format_table

if TYPE_CHECKING:
    from parley.server.records.run_summary import RunSummary

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


class SummarySection(NamedTuple):
    """Facts under a title; an empty title continues the section above."""

    title: str
    facts: tuple[Fact, ...]

    @property
    def line(self) -> str:
        """The brief facts in one line."""
        return join_facts(self.facts)


def build_run_sections(run: RunSummary) -> list[SummarySection]:
    """Build the sections of a run."""
    sections, counted = [], run.clipped_fraction is not None
    for of in run.guarantees:
        mark = guarantee_text.FIXED_RELEASES_NOTE if of is run.primary else ""
        sections += build_guarantee_sections(
            "spent", of, rounds=run.rounds, counted=counted, mark=mark
        )
    sections += [
        build_text_section("data set", guarantee_text.format_data_account(each))
        for each in run.data_accounts or ()
    ]
    sections += [
        build_text_section("bounds", guarantee_text.format_bounds(run.record_bounds, run.primary)),
        SummarySection(
            TRAINING, () if run.dp_sgd is None else guarantee_text.build_dp_sgd_facts(run.dp_sgd)
        ),
        build_text_section("clipped", guarantee_text.format_clipped_fraction(run)),
        build_text_section("components", guarantee_text.format_components(run)),
        build_text_section("features", run.features or ""),
        build_text_section("class weights", result_text.format_class_weights(run.class_weights)),
        build_text_section("evaluation", result_text.format_evaluation(run)),
        build_text_section("test set", result_text.format_public_test(run)),
        build_text_section("synthetic", format_table(run)),
        build_text_section("self-audit", result_text.format_self_audit(run)),
        build_text_section("parties", result_text.format_parties(run)),
        build_text_section("ledger", guarantee_text.format_ledger(run)),
        SummarySection(SUM, guarantee_text.build_secure_sum_facts(run.secure_aggregation)),
    ]
    return drop_empty(sections)


def build_guarantee_sections(
    title: str, guarantee: GuaranteeSummary, *, rounds: int, counted: bool, mark: str = ""
) -> list[SummarySection]:
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
        SummarySection(
            NOISE, guarantee_text.build_noise_facts(guarantee, rounds=rounds, counted=counted)
        ),
    ]


def build_text_section(title: str, text: str) -> SummarySection:
    """Return a section of one sentence, without facts if the text is empty."""
    return SummarySection(title, (Fact("", text),) if text else ())


def drop_empty(sections: Iterable[SummarySection]) -> list[SummarySection]:
    """Return the sections that have facts."""
    return [each for each in sections if each.facts]
