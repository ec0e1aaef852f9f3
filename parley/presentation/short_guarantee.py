"""A guarantee in a few short rows: what it promises, against whom, and what an attacker finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parley.presentation.short_layout import Row
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Adversary
from parley.safe_io.plurals import format_noun
from parley.server.statements import attack_rate_text, guarantee_text
from parley.server.statements.number_format import format_epsilon

if TYPE_CHECKING:
    from parley.server.records.guarantee_facts import DataAccount, GuaranteeSummary


def list_promise_rows(
    guarantees: Sequence[GuaranteeSummary], *, planned: bool = False
) -> list[Row]:
    """Return the rows of a run's or plan's guarantees.

    Args:
        planned: Nothing is spent yet, and rates for groups are shown, too.
    """
    rows = []
    for guarantee in guarantees:
        rows += [
            Row("Privacy", format_privacy(guarantee, planned=planned)),
            Row("Protects", format_protection(guarantee)),
            Row("Assuming", guarantee_text.format_assumptions(guarantee), rank=1),
            Row("Risk", format_risk(guarantee, groups=planned), rank=3),
        ]
    seeded = any(guarantee.noise.seeded for guarantee in guarantees)
    return [*rows, Row("Noise", "drawn from a seed: it protects nobody" if seeded else "")]


def format_privacy(guarantee: GuaranteeSummary, *, planned: bool = False) -> str:
    """Return the promise with unit and relation, and what was spent if that is another number."""
    promise = f"{guarantee_text.format_budget(guarantee)}, {format_short_scope(guarantee)}"
    spent = format_epsilon(guarantee.epsilon)
    if planned or spent == format_exact(guarantee.epsilon_budget):
        return promise
    return f"{promise}; spent {spent}, {guarantee_text.FIXED_RELEASES_NOTE}"


def format_short_scope(scoped: guarantee_text.HasPrivacyUnit) -> str:
    """Return unit and relation, as in "per record (replace-one)"."""
    return f"per {scoped.unit} ({scoped.neighbouring})"


def format_protection(guarantee: GuaranteeSummary) -> str:
    """Return against whom the charged ε holds."""
    adversary = guarantee_text.get_charged_adversary(guarantee)
    shares = guarantee.noise.shares
    if adversary is Adversary.READERS:
        return "against all who see the results, if everyone else is honest"
    if adversary is Adversary.COLLUDERS and shares is not None:
        return f"against {format_colluders(shares.colluders)}"
    return f"against {adversary.words}"


def format_colluders(count: int) -> str:
    """Return the server and so many parties.

    >>> format_colluders(0), format_colluders(1), format_colluders(2)
    ('the server', 'the server and 1 party that colludes with it', \
'the server and 2 parties that collude with it')
    """
    if not count:
        return "the server"
    verb = "colludes" if count == 1 else "collude"
    return f"the server and {count} {format_noun(count, 'party')} that {verb} with it"


def format_risk(guarantee: GuaranteeSummary, *, groups: bool) -> str:
    """Return how often an attacker recognises one of the unit; empty if that is not known."""
    if not guarantee.found:
        return ""
    one, *more = guarantee.found
    who = f"an attacker who knows all other {guarantee.unit.plural} recognises one"
    share, guess = _format_rate(one.rate), _format_rate(one.alarms)
    if not groups:
        return f"{who} in at most {share} of cases (guessing: {guess})"
    risk = f"{who} in at most {share} of cases"
    if not more:
        return risk
    several, *rest = more
    group = attack_rate_text.format_group(several.members, guarantee.unit)
    return f"{risk}; {group} in {_format_rate(several.rate)}" + "".join(
        f", {each.members} in {_format_rate(each.rate)}" for each in rest
    )


def format_short_account(account: DataAccount) -> str:
    """Return what a shared ledger's budget has left."""
    more = f"{account.jobs:,}{' or more' if account.jobs >= 1000 else ''} more such "
    return (
        f"{account.name!r} spent ε = {format_epsilon(account.spent)} of "
        f"{format_exact(account.epsilon)}, {format_short_scope(account)}; {more}"
        f"{format_noun(account.jobs, 'job')} fit{'s' if account.jobs == 1 else ''}"
    )


def _format_rate(rate: float) -> str:
    """Return a rate as pages do, without the space."""
    return attack_rate_text.format_percent(rate).replace(" ", "")
