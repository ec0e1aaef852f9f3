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

from parley.server.records import guarantee_text, result_text
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.guarantee_text import Fact, join
from parley.server.records.result_text import table_said

if TYPE_CHECKING:
    from parley.server.records.run_summary import RunSummary

NOISE, TRAINING, SUM = "noise", "DP-SGD", "secure sum"
"""Titles of the sections that the report explains in paragraphs."""
GUARANTEE = {"promise", "spent", "charged", "protects", "against", "attacker", "assuming", ""}
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
    sections, counted = [], run.clipped_fraction is not None
    for of in run.guarantees:
        mark = guarantee_text.FIXED if of is run.primary else ""
        sections += of_guarantee("spent", of, rounds=run.rounds, counted=counted, mark=mark)
    sections += [
        said("data set", guarantee_text.data_set(each)) for each in run.data_accounts or ()
    ]
    sections += [
        said("bounds", guarantee_text.bounds(run.record_bounds, run.primary)),
        Section(TRAINING, () if run.dp_sgd is None else guarantee_text.dp_sgd(run.dp_sgd)),
        said("clipped", guarantee_text.clipped(run)),
        said("components", guarantee_text.components(run)),
        said("features", run.features or ""),
        said("class weights", result_text.class_weights(run.class_weights)),
        said("evaluation", result_text.evaluation(run)),
        said("test set", result_text.public_test(run)),
        said("synthetic", table_said(run)),
        said("self-audit", result_text.self_audit(run)),
        said("parties", result_text.parties(run)),
        said("ledger", guarantee_text.ledger(run)),
        Section(SUM, guarantee_text.secure_sum(run.secure_aggregation)),
    ]
    return present(sections)


def of_guarantee(
    title: str, of: GuaranteeSummary, *, rounds: int, counted: bool, mark: str = ""
) -> list[Section]:
    """What a guarantee comes to, against whom, and its noise (as `guarantee_text.noise` takes it).

    Args:
        mark: for which analysts the figure of what was spent holds.
    """
    cost = f"{guarantee_text.spent(of)}{guarantee_text.charged_by(of)}"
    return [
        said("promise", guarantee_text.promise(of)),
        said(title, f"{cost}, {mark}" if mark else cost),
        said("protects", f"{of.unit.words}; {guarantee_text.relation(of)}"),
        *(
            said("" if at else "against", each)
            for at, each in enumerate(guarantee_text.accounts(of))
        ),
        said("attacker", guarantee_text.attacked(of)),
        said("assuming", guarantee_text.assumed(of)),
        Section(NOISE, guarantee_text.noise(of, rounds=rounds, counted=counted)),
    ]


def said(title: str, text: str) -> Section:
    """A section of one sentence, or none."""
    return Section(title, (Fact("", text),) if text else ())


def present(sections: Iterable[Section]) -> list[Section]:
    """Those that say anything."""
    return [each for each in sections if each.facts]


def html_table(sections: Sequence[tuple[str, str]]) -> str:
    """Titles and lines as the table that a notebook shows."""
    cells = "".join(
        f'<tr><th style="text-align: left">{escape(title)}</th>'
        f'<td style="text-align: left">{escape(line)}</td></tr>'
        for title, line in sections
    )
    return f"<table>{cells}</table>"
