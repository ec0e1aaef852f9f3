"""Describe a guarantee as an attacker's success rate: how often a record, or several, are
recognised.

An ε means little to the person who has to decide. This module words the same guarantee as a rate
(`parley.privacy.accounting.attack_power.compute_attack_power`) for plan, report, certificate and
terminal.

    >>> from parley.server.records.guarantee_facts import AttackerRate
    >>> rates = [AttackerRate(members=k, alarms=0.05, rate=k * 0.1261) for k in (1, 2)]
    >>> print(format_attack(rates, Unit.RECORD))
    who knows all other records and raises 5 % false alarms recognises one record in at most \
12.7 % of cases; 2 records together in 25.3 % (guessing: 5 %)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from parley.privacy.accounting.threat_model import Adversary, Neighbouring, Unit

if TYPE_CHECKING:
    from parley.server.records.guarantee_facts import AttackerRate


def format_percent(rate: float) -> str:
    """Format a rate, rounded up to a tenth of a percent."""
    return f"{min(100.0, math.ceil(rate * 1000 - 1e-6) / 10):g} %"


def format_group(members: int, unit: Unit) -> str:
    """Format one of the unit, or several together."""
    return f"one {unit}" if members == 1 else f"{members} {unit.plural} together"


def format_attack(rates: Sequence[AttackerRate], unit: Unit) -> str:
    """Format what an attacker achieves, in one line that follows "an attacker"."""
    first, *more = rates
    rest = [
        f"{format_group(each.members, unit)} in {format_percent(each.rate)}" for each in more[:1]
    ]
    rest += [f"{each.members} in {format_percent(each.rate)}" for each in more[1:]]
    return (
        f"who knows all other {unit.plural} and raises {format_percent(first.alarms)} false alarms "
        f"recognises {format_group(first.members, unit)} in at most {format_percent(first.rate)} "
        f"of cases{'; ' if rest else ''}{', '.join(rest)} (guessing: "
        f"{format_percent(first.alarms)})"
    )


def format_caption(
    rates: Sequence[AttackerRate], unit: Unit, relation: Neighbouring, against: Adversary
) -> str:
    """Format the full caption for the table of `build_rows`."""
    false = (
        f"another {unit} is present and is mistaken for it"
        if relation is Neighbouring.REPLACE_ONE
        else "it is absent but is reported as present"
    )
    return (
        f"How often an attacker ({against.words}), who knows all other {unit.plural} and raises "
        f"{format_percent(rates[0].alarms)} false alarms, recognises the target. A false alarm: "
        f"{false}"
    )


HEADER = ("target", "recognised in at most")
"""Column headings of `build_rows`."""


def build_rows(rates: Sequence[AttackerRate], unit: Unit) -> list[list[str]]:
    """Return the rates as table rows: who is looked for, and the maximum rate."""
    shown = [("a guess, without any release", rates[0].alarms)]
    shown += [(format_group(each.members, unit), each.rate) for each in rates]
    return [[who, f"{format_percent(rate)} of cases"] for who, rate in shown]
