"""Against whom a run's guarantees hold: the rows of `accounts` in `summary.json` and in a plan.

Noise in shares has three: the server and its colluders, who know all but k shares, are charged;
readers of the models know none; and all others together know all but one, which is charged where
that one is all of the noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Adversary, Attendance, Unit
from parley.server.records.guarantee_facts import AdversaryAccount


def accounts_of(
    plan: ReleasePlan,
    unit: Unit,
    *,
    epsilon: float,
    delta: float,
    summed: Sequence[int],
    beside: Sequence[Guarantee] = (),
) -> tuple[AdversaryAccount, ...]:
    """What a unit's guarantee comes to against each adversary, the charged account first.

    Args:
        epsilon, delta: what was charged.
        summed: contributions in the sum of each round that was released.
        beside: the guarantee of each release ahead of the rounds or after them. All releases
            together hold against those alone whom each of them holds against.
    """
    by = plan.charged_by(unit)
    known = [by.against, *(each.against for each in beside)]
    charged = min(known, key=tuple(Adversary).index)
    rows = [AdversaryAccount(adversary=charged, charged=True, epsilon=epsilon, delta=delta)]
    rows += _of_attendance(by, epsilon=epsilon, delta=delta, rounds=len(summed), beside=beside)
    if by.shares is None:
        return tuple(rows)
    for adversary in (Adversary.READERS, Adversary.OTHERS):
        if adversary is charged:
            continue
        spent: Composition | None = Composition.empty()
        for each in beside:
            # Whose shares are in its sum isn't known here: what was charged bounds it for readers.
            readers = adversary is Adversary.READERS
            event = each.event if readers else each.event_against(adversary)
            spent = None if spent is None or event is None else spent.add(event)
        for survivors, count in Counter(summed).items():
            event = by.event_against(adversary, survivors=survivors)
            spent = None if spent is None or event is None else spent.add(event, count=count)
        proved = math.inf if spent is None else spent.epsilon(delta)[1]
        rows.append(_uncharged(adversary, proved, delta))
    return tuple(rows)


def _of_attendance(
    by: Guarantee, *, epsilon: float, delta: float, rounds: int, beside: Sequence[Guarantee]
) -> list[AdversaryAccount]:
    """The account that is not charged, where parties are sampled by their own coins.

    One who knows which rounds a party was in is charged for the coins alone. What hides a party is
    no secret of a record's: it has one account, against both.
    """
    if by.attendance == 1:
        return []
    sampled = by.mechanism.sampled
    if sampled is None or by.unit is not Unit.PARTY:
        return [_uncharged(Attendance.EITHER, epsilon, delta)]
    known = sampled.hidden  # then the other is
    rate = 1.0 if known else sampled.attendance
    other = replace(by, mechanism=replace(sampled, sampling_rate=rate, hidden=not known))
    spent = Composition.of(each.event for each in beside).add(other.event, count=rounds)
    who = Attendance.KNOWN if known else Attendance.HIDDEN
    return [_uncharged(who, spent.epsilon(delta)[1], delta)]


def _uncharged(who: Adversary | Attendance, epsilon: float, delta: float) -> AdversaryAccount:
    return AdversaryAccount(adversary=who, charged=False, epsilon=epsilon, delta=delta)
