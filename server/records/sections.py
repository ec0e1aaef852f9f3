"""What a job is and comes to, planned or run: a list of sections of facts, in one order.

The list is made once, from the types; the terminal's tables, the report, a notebook and the model's
statement show it.

    >>> Section("noise", (Fact("scale", "0.05"), Fact("calibration", "exact", brief=False))).line
    'scale 0.05'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from parley.server.records import result_words, words
from parley.server.records.guarantee_facts import GuaranteeOutlook, GuaranteeSummary
from parley.server.records.synthetic_words import release_ahead, table_said
from parley.server.records.words import Fact, join

if TYPE_CHECKING:
    from parley.server.records.outlook import Outlook
    from parley.server.records.summary import RunSummary

NOISE, TRAINING, SUM = "noise", "DP-SGD", "secure sum"
"""Titles of the sections that the report explains in paragraphs."""
GUARANTEE = {"spent", "charged", "protects", "against", ""}
"""Those of a guarantee, beside its noise."""


class Section(NamedTuple):
    """Facts under a title; the title is empty where they go on with what is above."""

    title: str
    facts: tuple[Fact, ...]

    @property
    def line(self) -> str:
        """The brief facts in one line."""
        return join(self.facts)


def of_run(run: RunSummary) -> list[Section]:
    """What a run came to."""
    sections = []
    for of in run.guarantees:
        noise = words.noise(of, rounds=run.rounds, counted=run.clipped_fraction is not None)
        sections += [*_of_guarantee("spent", of), Section(NOISE, noise)]
    sections += [_said("data set", words.data_set(each)) for each in run.data_accounts or ()]
    sections += [
        _said("bounds", words.bounds(run.record_bounds, run.primary)),
        Section(TRAINING, () if run.dp_sgd is None else words.dp_sgd(run.dp_sgd)),
        _said("clipped", words.clipped(run)),
        _said("components", words.components(run)),
        _said("features", run.features or ""),
        _said("class weights", result_words.class_weights(run)),
        _said("evaluation", result_words.evaluation(run)),
        _said("test set", result_words.public_test(run)),
        _said("synthetic", table_said(run)),
        _said("self-audit", result_words.self_audit(run)),
        _said("parties", result_words.parties(run)),
        _said("ledger", words.ledger(run)),
        Section(SUM, words.secure_sum(run.secure_aggregation)),
    ]
    return _present(sections)


def of_plan(outlook: Outlook) -> list[Section]:
    """What a job will come to."""
    counted = outlook.dp_sgd is not None and bool(outlook.dp_sgd.clipped_fraction_share)
    sections = []
    for of in outlook.guarantees:
        noise = words.noise(of, rounds=outlook.rounds, counted=counted)
        sections += [*_of_guarantee("charged", of), Section(NOISE, noise)]
    sections += [_said("data set", words.data_set(each)) for each in outlook.data_accounts or ()]
    sections += [
        _said("bounds", words.bounds(outlook.record_bounds, outlook.primary)),
        Section("sensitivity", words.sensitivity(outlook)),
        Section(TRAINING, () if outlook.dp_sgd is None else words.training(outlook.dp_sgd)),
        Section("steps", words.distributed(outlook.distributed)),
        _said("class weights", result_words.class_weights(outlook)),
        _said("evaluation", result_words.evaluation_ahead(outlook.evaluation)),
        _said("synthetic", release_ahead(outlook.synthetic)),
        _said("simulation", result_words.simulation_ahead(outlook.simulation)),
        _said("ledger", outlook.data_note or ""),
        Section(SUM, words.grid(outlook.grid)),
    ]
    return _present(sections)


def _of_guarantee(title: str, of: GuaranteeSummary | GuaranteeOutlook) -> list[Section]:
    return [
        _said(title, f"{words.spent(of)}, of a budget of {words.budget(of)}{words.charged_by(of)}"),
        _said("protects", f"{of.unit.words}; {words.relation(of)}"),
        *(_said("" if at else "against", each) for at, each in enumerate(words.accounts(of))),
    ]


def _said(title: str, text: str) -> Section:
    return Section(title, (Fact("", text),) if text else ())


def _present(sections: Iterable[Section]) -> list[Section]:
    return [each for each in sections if each.facts]


def html_table(sections: Sequence[tuple[str, str]]) -> str:
    """Titles and lines as the table that a notebook shows."""
    cells = "".join(
        f'<tr><th style="text-align: left">{escape(title)}</th>'
        f'<td style="text-align: left">{escape(line)}</td></tr>'
        for title, line in sections
    )
    return f"<table>{cells}</table>"
