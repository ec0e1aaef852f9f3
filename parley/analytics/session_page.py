"""Build the page of a session: each answer as a plot or a table, and the course of the budget.

It shows only what is released or public. You may pass it on to everyone who may see the answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from parley.analytics.answer import ENDS, Answer, format_rows, format_to_width, list_columns
from parley.analytics.curve_figure import plot_answer_curves
from parley.analytics.table_one_output import TableOne
from parley.presentation.document import (
    Card,
    Document,
    Figure,
    Figures,
    Heading,
    LegendEntry,
    Section,
    Table,
    Text,
    build_section,
    drop_empty,
)
from parley.presentation.interval_plots import plot_interval_rows, plot_interval_steps
from parley.presentation.page_registry import write_page
from parley.presentation.plots import Curve as Line
from parley.presentation.plots import Palette, draw_figure, plot_curves
from parley.presentation.vega_lite import Spec
from parley.privacy.accounting.attack_power import compute_attack_power
from parley.privacy.accounting.group_privacy import compute_group_epsilon
from parley.privacy.accounting.rounding import format_exact, format_rounded_down, format_rounded_up
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.budget import DatasetBudget
from parley.safe_io.os_errors import report_os_errors
from parley.safe_io.plurals import format_noun
from parley.server.records.run_folder import RunFolderError
from parley.server.statements import guarantee_text
from parley.server.statements.attack_rate_text import format_group, format_percent
from parley.server.statements.number_format import format_number
from parley.version import __version__

_MAX_ROWS = 24
_MAX_STEPS = 400
_MAX_CELLS = 200
"""Maximum cells of a table on the page; the folder has all of them."""
_COVERAGE_TEXTS = {
    False: "without noise",
    True: "in the population of the records, by a normal approximation",
}


def build_numbers_table(answers: Sequence[Answer]) -> Table:
    """Return a table of single-number answers whose intervals cover the same."""
    rows = []
    for each in answers:
        low, high = each.interval
        shown = [format_to_width(x, high - low) for x in (each.value, low, high)]
        if not math.isfinite(each.value):
            shown[0] = "too few records for this ε"
        rows.append([each.title, *shown, format_exact(each.ledger.epsilon)])
    return Table(
        caption=f"Answers with one number and its {answers[0].intervals}, for the value "
        f"{_COVERAGE_TEXTS[answers[0].intervals.sampling]}",
        head=["asked", "answer", "from", "to", "ε"],
        rows=rows,
    )


def build_answer_figure(answer: Answer) -> Figure:
    """Return an answer of several cells as a table, with a plot if one is useful."""
    table, keys = answer.table, [name for name in answer.table if name not in ENDS]
    values = [np.asarray(table[name], dtype=np.float64) for name in ("low", "value", "high")]
    low, value, high = values
    known = np.isfinite(values).all(axis=0)
    count, rows = len(value), format_rows(table, _MAX_CELLS)
    more = f"; the first {_MAX_CELLS} of {count:,} cells" if count > _MAX_CELLS else ""
    name, intervals = answer.title, answer.intervals.plural
    finding = _format_finding(answer, int((~known).sum()))
    key: Sequence[LegendEntry] = (
        LegendEntry(name="answer", colour=Palette.ACCENT, width=3),
        LegendEntry(name=str(answer.intervals), colour=Palette.QUIET),
    )
    chart: Spec | None = None
    if answer.query.curve:
        chart, key = plot_answer_curves(answer)
    elif known.any() and not answer.query.inference:  # ratios and p-values need no plot
        edges = [k for k in keys if k.endswith((" from", " to"))]
        if len(keys) == 2 == len(edges) and count <= _MAX_STEPS and known.all():
            spans = [np.asarray(table[edge], dtype=np.float64) for edge in edges]
            steps = list(zip(*(x.tolist() for x in (*spans, low, value, high)), strict=True))
            chart = plot_interval_steps(steps, x_title=edges[0].removesuffix(" from"))
        elif count <= _MAX_ROWS:
            texts = [at for at, key in enumerate(keys) if isinstance(table[key][0], str)]
            marks = [" · ".join(row[at] for at in texts or range(len(keys))) for row in rows]
            named = [
                (marks[k] or name, float(low[k]), float(value[k]), float(high[k]))
                for k in np.flatnonzero(known)
            ]
            chart = plot_interval_rows(named, from_zero=bool((value[known] >= 0).all()))
    caption = f"{intervals[:1].upper()}{intervals[1:]}{more}"
    data = Table(caption=caption, head=[*keys, *ENDS], rows=rows)
    if chart is None:
        return Figure(title=name, finding=finding, data=data)
    return draw_figure(name, finding, chart, data, keys=key)


def build_derived_figures(answer: Answer, *, shown: str = "") -> list[Figure]:
    """Return an answer's derived tables, except the one that is `shown` already."""
    figures = []
    for name, table in answer.beside.items():
        if name == shown:
            continue
        rows, head = format_rows(table, _MAX_CELLS), list_columns(table)
        named = name if "~" in name else f"{name[:1].upper()}{name[1:]}"  # a formula has columns
        title = f"{named}: {answer.title}"
        caption = answer.intervals.plural if ENDS[1] in head else _describe_columns(head)
        data = Table(caption=f"{caption[:1].upper()}{caption[1:]}", head=head, rows=rows)
        figures.append(Figure(title=title, finding="From the same release.", data=data))
    return figures


def _describe_columns(head: Sequence[str]) -> str:
    """Return what the intervals and p of a derived table cover, if it has any."""
    found = [text for name, text in (("from", "intervals"), ("p", "p")) if name in head]
    if not found:
        return "noisy values"
    return f"{' and '.join(found)} {'covers' if found == ['p'] else 'cover'} noise and sampling"


def _format_finding(answer: Answer, unknown: int) -> str:
    charge = answer.ledger
    together = f" for {charge.queries} queries together" if charge.queries > 1 else ""
    together += f" in {len(answer.earlier) + 1} steps" if answer.earlier else ""
    few = f" {unknown} of the cells have too few records for this ε." if unknown else ""
    return (
        f"{len(answer.table['value']):,} cells from {answer.survivors} of {answer.parties} "
        f"parties; {answer.law}, scale {answer.scale:.4g}; ε = {answer.asked}{together}.{few}"
    )


def build_budget_figure(answers: Sequence[Answer], budget: DatasetBudget) -> Figure | None:
    """Return a figure of ε spent by release, or None if no release was charged to the data's
    budget.
    """
    charges = (each.ledger for each in answers)
    own = {each.index: each for each in charges if each.budget.key == budget.key}
    if not own:
        return None
    finding = (
        f"After release {max(own)}, ε = {format_rounded_up(own[max(own)].spent)} of "
        f"{format_exact(budget.epsilon)} is spent ({budget.unit}, {budget.neighbouring})."
    )
    points = [(0.0, 0.0), *((float(index), charge.spent) for index, charge in own.items())]
    chart = plot_curves([Line(name="spent", points=points)], most=budget.epsilon, x_title="release")
    rows = [
        [str(at), format_exact(of.epsilon), *map(format_rounded_up, (of.spent, of.left))]
        for at, of in own.items()
    ]
    table = Table(caption=finding, head=["release", "asked ε", "spent", "left"], rows=rows)
    return draw_figure("ε spent, by release", finding, chart, table)


_UNIT_LIMITS = {
    Unit.RECORD: "A person with several records has the protection of a group.",
    Unit.PERSON: (
        "A person's records are protected together in one party; a person known to several parties "
        "has the protection of a group."
    ),
    Unit.PARTY: (
        "A party's records are protected together; a person known to several parties has the "
        "protection of a group."
    ),
}
"""Text on who is not fully protected by the guarantee, by unit."""
_GROUPS = (1, 2, 5, 10, 50)
_ALARMS = (0.01, 0.05, 0.2)


def build_session_document(
    answers: Sequence[Answer], totals: BudgetAccount, name: str, *, table_one: int = 0
) -> Document:
    """Build the page of the session `name`.

    Args:
        table_one: Number of the release to show as a table one; 0 for none.
    """
    asked = [each for each in answers if not each.query.interim_text]
    first = [each.with_intervals() for each in asked if each.ledger.index == table_one]
    others = [each for each in asked if each.ledger.index != table_one]
    budget = build_budget_figure(answers, totals.budget)
    drawn, promise = Figures([budget]) if budget else None, _format_promise(answers, totals.budget)
    sections = [
        _build_table_one(first),
        _build_answers(others, first),
        build_section("The budget as it went", drawn, _build_release_table(answers)),
        build_section("The guarantee", Text(promise), _build_attacker_table(totals)),
    ]
    return Document(
        overline=f"Parley session {name}",
        headline=_format_headline(asked, totals),
        notices=_list_notices(answers),
        cards=_build_cards(answers, totals),
        sections=drop_empty(sections),
        footer=_format_footer(),
    )


def write_session_page(
    answers: Sequence[Answer], totals: BudgetAccount, name: str, target: Path, *, table_one: int = 0
) -> Path:
    """Write the page of the session `name`, replacing an older one, and return its path.

    Raises:
        RunFolderError: the page cannot be written.
    """
    with report_os_errors(RunFolderError, f"Cannot write {target}"):
        return write_page("session", target, answers, totals, name, table_one=table_one)


def _build_table_one(answers: Sequence[Answer]) -> Section:
    """Return the section of a table one; without parts if none is shown."""
    if not answers:
        return build_section("Table one")
    table = TableOne.from_answers([each.to_json() for each in answers])
    width = 1 + len(table.shown)
    rows = [[*row, *[""] * (width - len(row))] for row in table.rows]
    return build_section(
        "Table one",
        Text(table.head.removeprefix("Table one: ")),
        Table(head=[table.by, *table.shown] if table.by else [""] * width, rows=rows),
        *(Text(note, "fine") for note in table.notes),
    )


def _build_answers(answers: Sequence[Answer], table_one: Sequence[Answer]) -> Section:
    """Return the section of all other answers: numbers, plots, then tables."""
    single = [each for each in answers if each.is_scalar]
    wide = [each for each in answers if not each.is_scalar]
    figures = [build_answer_figure(each) for each in wide]
    drawn = [each for each in figures if each.plot]
    tables = [each for each in figures if not each.plot]
    tables += [table for each in wide for table in build_derived_figures(each)]
    tables += [table for each in table_one for table in build_derived_figures(each, shown="mean")]
    return build_section(
        "Answers",
        *(
            build_numbers_table([each for each in single if each.intervals == covered])
            for covered in dict.fromkeys(each.intervals for each in single)
        ),
        Figures(drawn, "pair") if drawn else None,
        *(
            part
            for each in tables
            for part in (Heading(each.title), Text(each.finding, "fine"), each.data)
        ),
    )


def _format_headline(answers: Sequence[Answer], totals: BudgetAccount) -> str:
    spent = format_rounded_up(totals.epsilon)
    asked = "one question" if len(answers) == 1 else f"{format_number(len(answers))} questions"
    return f"{asked[:1].upper()}{asked[1:]} answered for ε = {spent}"


def _list_notices(answers: Sequence[Answer]) -> list[str]:
    if any(each.ledger.seeded for each in answers):
        return [
            "The noise of this session came from a seed. The answers show what real ones would "
            "look like, and protect no one."
        ]
    return []


def _build_cards(answers: Sequence[Answer], totals: BudgetAccount) -> list[Card]:
    budget = totals.budget
    spent, left = totals.epsilon, budget.compute_remaining(totals.spent_or_held)
    cards = [
        Card(
            title="Privacy spent",
            value=f"ε = {format_rounded_up(spent)} of {format_exact(budget.epsilon)}",
            note=f"Per {budget.unit}, {budget.neighbouring}, at δ = {format_exact(budget.delta)}; "
            f"left {format_rounded_down(left)}. This includes all charges to these data in "
            f"this ledger. The budget holds {budget.certificate.description}. Spent: "
            f"{guarantee_text.FIXED_RELEASES_NOTE}.",
            wide=True,
            share=min(spent / budget.epsilon, 1.0),
        )
    ]
    if not answers:
        return cards
    last = answers[-1]
    releases = len({each.ledger.index for each in answers})
    asked = format_number(sum(not each.query.interim_text for each in answers))
    note = f"in {format_number(releases)} {format_noun(releases, 'release')}, each one secure sum"
    cards.append(Card(title="Questions", value=asked, note=note))
    note = "fewest in any answer"
    if last.records is not None:
        records = f"{format_number(last.records)} {format_noun(last.records, 'record')}"
        note += f"; {records} in the last answer"
    fewest = format_number(min(each.survivors for each in answers))
    value = f"{fewest} of {format_number(last.parties)}"
    return [*cards, Card(title="Parties", value=value, note=note)]


def _build_release_table(answers: Sequence[Answer]) -> Table:
    rows = []
    for index in dict.fromkeys(each.ledger.index for each in answers):
        own = [each for each in answers if each.ledger.index == index]
        first, charge, titles = own[0], own[0].ledger, "; ".join(each.title for each in own)
        left = f"{format_rounded_down(charge.left)} of {format_exact(charge.budget.epsilon)}"
        found = format_percent(replace(first, earlier=()).tradeoff())
        there, price = f"{first.survivors} of {first.parties}", format_exact(charge.epsilon)
        rows.append([str(index), titles, first.law, there, price, found, left])
    return Table(
        caption="Every release, in order. Each was charged before the parties were asked. Found: "
        "how often, at most, an attacker with 5 % false alarms is right about one unit, from this "
        "release only",
        head=["", "asked", "noise", "parties", "ε", "found", "left of the budget"],
        rows=rows,
        prose=True,
    )


def _format_promise(answers: Sequence[Answer], budget: DatasetBudget) -> str:
    against = sorted({each.ledger.against.short for each in answers})
    whom = f" It holds against {' and '.join(against)}." if against else ""
    assumed = dict.fromkeys(said for each in answers for said in each.ledger.assumptions)
    whom += f" It assumes: {'; '.join(assumed)}." if assumed else ""
    change = {"replace-one": "Replacing", "add-or-remove-one": "Adding or removing"}
    return (
        f"{change.get(str(budget.neighbouring), 'Changing')} one {budget.unit} changes the "
        "probability of any conclusion from all of these answers by a factor of at most e^ε, plus "
        f"δ, with ε and δ of the budget, {budget.certificate.validity}.{whom} "
        f"{_format_coverage(answers)} {_UNIT_LIMITS[budget.unit]}"
    )


def _format_coverage(answers: Sequence[Answer]) -> str:
    sampled = sum(each.intervals.sampling for each in answers)
    if not sampled:
        return (
            "Intervals cover the value without noise, including rounding. They do not cover the "
            "variation between samples of records."
        )
    which = "Intervals" if sampled == len(answers) else "Intervals marked so"
    return (
        f"{which} cover sampling error and noise, by a normal approximation, with the records as "
        "independent draws from one population. They do not cover the choice of parties."
    )


def _build_attacker_table(totals: BudgetAccount) -> Table:
    budget, spent, rows = totals.budget, totals.spent, []
    for members in _GROUPS:
        epsilon = compute_group_epsilon(spent, budget.delta, members)
        rates = [compute_attack_power(spent, members=members, alpha=alpha) for alpha in _ALARMS]
        who = format_group(members, budget.unit)
        rows.append([who, format_rounded_up(epsilon, 4), *map(format_percent, rates)])
    alarms = [f"found at {100 * alpha:g} % false alarms" for alpha in _ALARMS]
    return Table(
        caption="Upper bounds on what all answers together reveal; ε at δ = "
        f"{format_exact(budget.delta)}, {budget.neighbouring}",
        head=["about", "ε", *alarms],
        rows=rows,
    )


def _format_footer() -> str:
    return (
        f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by Parley {__version__}. The session's "
        "folder also has answers.jsonl, ledger.sqlite, schema.toml and session.json. Costs are "
        "rounded up, remaining budgets are rounded down."
    )
