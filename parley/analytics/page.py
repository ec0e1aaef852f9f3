"""The page of a session: every answer as a plot or a table, and the budget as it went.

It needs nothing but itself: no script, no address; its own content-security policy forbids both.
What it shows is released already, or public: it may be passed on to whomever the answers are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from parley.analytics.answer import Answer, several
from parley.analytics.answer_figures import answer_figure, budget_figure, numbers_table
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.accounting.rounding import as_written, shown_down, shown_up
from parley.privacy.accounting.tradeoff import curve_of, group_epsilon, spent_power
from parley.privacy.ledger.budget import DatasetBudget, DatasetTotals
from parley.report.parts import Card, Table, write_page
from parley.server.records.numerals import number
from parley.server.records.run_folder import RunFolderError
from parley.version import __version__

_BEYOND = {
    Unit.RECORD: "A person with several records has the protection of a group.",
    Unit.PERSON: "A person's records are hidden together in one party; who is known to several "
    "parties has the protection of a group.",
    Unit.PARTY: "All that one party holds is hidden together; who is known to several parties has "
    "the protection of a group.",
}
"""Whom the promise does not reach."""
_GROUPS = (1, 2, 5, 10, 50)
_ALARMS = (0.01, 0.05, 0.2)


def write_session_page(
    answers: Sequence[Answer], totals: DatasetTotals, name: str, target: Path
) -> Path:
    """Writes the page of the session `name`, replacing an older one, and returns its path.

    Raises:
        RunFolderError: it can't be written to.
    """
    single = [each for each in answers if each.alone]
    figures = [answer_figure(each) for each in answers if not each.alone]
    try:
        return write_page(
            target,
            "session.html.j2",
            package="parley.analytics",
            name=name,
            headline=_headline(answers, totals),
            notices=_notices(answers),
            cards=_cards(answers, totals),
            numbers=[
                numbers_table([each for each in single if each.intervals == covered])
                for covered in dict.fromkeys(each.intervals for each in single)
            ],
            figures=[each for each in figures if each.plot],
            budget=budget_figure(answers, totals.budget),
            tables=[each for each in figures if not each.plot],
            releases=_releases(answers),
            promise=_promise(answers, totals.budget),
            attacker=_attacker(totals),
            footer=_footer(),
        )
    except OSError as error:
        raise RunFolderError(f"Expected to write {target}, got: {error}.") from error


def _headline(answers: Sequence[Answer], totals: DatasetTotals) -> str:
    spent = shown_up(totals.spent.epsilon(totals.budget.delta)[1])
    asked = "one question" if len(answers) == 1 else f"{number(len(answers))} questions"
    return f"{asked[:1].upper()}{asked[1:]} answered for ε = {spent}"


def _notices(answers: Sequence[Answer]) -> list[str]:
    if any(each.ledger.seeded for each in answers):
        return [
            "The noise of this session came from a seed: it shows what real answers would look "
            "like, and protects nobody."
        ]
    return []


def _cards(answers: Sequence[Answer], totals: DatasetTotals) -> list[Card]:
    budget = totals.budget
    spent, left = totals.spent.epsilon(budget.delta)[1], budget.left(totals.taken).epsilon
    cards = [
        Card(
            title="Privacy spent",
            value=f"ε = {shown_up(spent)} of {as_written(budget.epsilon)}",
            note=f"Per {budget.unit}, {budget.neighbouring}, at δ = {as_written(budget.delta)}; "
            f"left {shown_down(left)}. Everything charged to these data in this ledger.",
            wide=True,
            share=min(spent / budget.epsilon, 1.0),
        )
    ]
    if not answers:
        return cards
    last = answers[-1]
    releases = len({each.ledger.index for each in answers})
    cards.append(
        Card(
            title="Questions",
            value=number(len(answers)),
            note=f"in {number(releases)} release{'s' if releases > 1 else ''}, a secure sum each",
        )
    )
    records = "" if last.records is None else f"{number(last.records)} records in the last answer"
    cards.append(
        Card(
            title="Parties",
            value=f"{number(min(each.survivors for each in answers))} of {number(last.parties)}",
            note="; ".join(part for part in ("fewest in any answer", records) if part),
        )
    )
    return cards


def _releases(answers: Sequence[Answer]) -> Table:
    rows = []
    for index in dict.fromkeys(each.ledger.index for each in answers):
        own = [each for each in answers if each.ledger.index == index]
        charge = own[0].ledger
        rows.append(
            [
                str(index),
                "; ".join(each.title for each in own),
                own[0].law,
                f"{own[0].survivors} of {own[0].parties}",
                as_written(charge.epsilon),
                f"{own[0].tradeoff():.1%}",
                f"{shown_down(charge.left)} of {as_written(charge.budget.epsilon)}",
            ]
        )
    return Table(
        caption="Every release, in order: each was charged before anybody was asked. Found: the "
        "most that an attacker with 5 % false alarms finds by this release alone",
        head=["", "asked", "noise", "parties", "ε", "found", "left of its budget"],
        rows=rows,
    )


def _promise(answers: Sequence[Answer], budget: DatasetBudget) -> str:
    against = sorted({each.ledger.against.short for each in answers})
    whom = f" It holds against {' and '.join(against)}." if against else ""
    change = {"replace-one": "Replacing", "add-or-remove-one": "Adding or removing"}
    return (
        f"{change.get(str(budget.neighbouring), 'Changing')} one {budget.unit} changes the "
        "probability of whatever anybody concludes from all of these answers by a factor of at "
        "most e^ε, "
        f"plus δ.{whom} {_covered(answers)} {_BEYOND[budget.unit]}"
    )


def _covered(answers: Sequence[Answer]) -> str:
    sampled = sum(each.intervals.sampling for each in answers)
    if not sampled:
        return (
            "Intervals are of the noise alone: what another sample of records would have said is "
            "no part of them."
        )
    which = "Intervals" if sampled == len(answers) else "Intervals that say so"
    return (
        f"{which} cover sampling beside the noise, by a normal approximation: the records as "
        "independent draws from one population. That other parties might have taken part is no "
        "part of them."
    )


def _attacker(totals: DatasetTotals) -> Table:
    budget, spent, rows = totals.budget, totals.spent, []
    curve = curve_of(lambda delta: spent.epsilon(delta)[1])
    for members in _GROUPS:
        epsilon = group_epsilon(spent, budget.delta, members)
        many = f"{members} {several(budget.unit)} together"
        who = f"one {budget.unit}" if members == 1 else many
        found = [f"{spent_power(alpha, spent, curve, members=members):.1%}" for alpha in _ALARMS]
        rows.append([who, shown_up(epsilon, 4), *found])
    alarms = [f"found at {alpha:.0%} false alarms" for alpha in _ALARMS]
    return Table(
        caption=f"What all answers together tell at most; ε at δ = {as_written(budget.delta)}, "
        f"{budget.neighbouring}",
        head=["about", "ε", *alarms],
        rows=rows,
    )


def _footer() -> str:
    return (
        f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by Parley {__version__}. Beside it in the "
        "session's folder: answers.jsonl, ledger.sqlite, schema.toml, session.json. A cost is "
        "rounded up, what is left is rounded down."
    )
