"""What the guarantees of a job come to, planned or spent, and both bounds of a record's.

Where two bounds are proved for a record in the released models (privacy.md, section 4), one is
charged and the other is shown beside it: the DP-SGD in a party also holds against the server, which
sees the sum before its own noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from parley.client.contract.assumptions import assumptions_for
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Adversary, Attendance, Unit
from parley.privacy.accounting.tradeoff import ALARMS, GROUPS, found
from parley.server.jobs.job import Job
from parley.server.jobs.privacy import UnitBudget
from parley.server.jobs.running import in_process
from parley.server.planning.job_planner import account, averaged
from parley.server.planning.run_stages import Stage, assumed, beside, rounds_of, spent_before
from parley.server.records.guarantee_facts import (
    AdversaryAccount,
    AfterRound,
    Bound,
    FoundOf,
    GuaranteeOutlook,
    GuaranteeSummary,
    Noise,
    NoiseShares,
    RecordBounds,
)
from parley.server.records.run_progress import Progress


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


def guarantee_summaries(
    job: Job,
    plan: ReleasePlan,
    progress: Progress,
    *,
    engine: str,
    beside: Sequence[Guarantee] = (),
    assumptions: Sequence[str] = (),
) -> tuple[GuaranteeSummary, ...]:
    """What each guarantee came to; `beside`: of the releases around the rounds that were made.

    Args:
        assumptions: what they rest on.
    """
    summed = [line.parties.summed for line in progress.lines]
    return tuple(
        GuaranteeSummary(
            **_facts(
                plan,
                own,
                asked,
                progress.spent[own.unit],
                summed=summed,
                beside=beside,
                assumptions=assumptions,
            ),
            noise=noise_of(job, plan, own, engine=engine),
        )
        for own, asked in zip(plan.guarantees, job.budgets, strict=True)
    )


def guarantee_outlook(
    job: Job, stages: Sequence[Stage], own: Guarantee, asked: UnitBudget
) -> GuaranteeOutlook:
    """What a guarantee will come to, if all parties survive every round."""
    rounds = rounds_of(stages)
    plan, noise = rounds.plan, noise_of(job, rounds.plan, own, engine=job.run.engine)
    before = spent_before(stages, stages.index(rounds))[own.unit]
    event = plan.event(own.unit)
    return GuaranteeOutlook(
        **_facts(
            plan,
            own,
            asked,
            spent_before(stages, len(stages))[own.unit],
            summed=[plan.parties] * job.rounds,
            beside=[each.plan.primary for each in beside(stages)],
            assumptions=assumed(stages, [stage.name for stage in stages]),
        ),
        # What moves a sum is said beside; nothing was drawn yet.
        noise=noise.model_copy(update={"sensitivity": None, "seeded": None}),
        description=_described(plan, own),
        epsilon_by_round=tuple(
            AfterRound(round=number, **account(before.add(event, count=number), own.delta))
            for number in _shown_rounds(job.rounds)
        ),
    )


_MOST_ROUNDS = 1000
"""The most rounds whose ε a plan lists: of more, evenly spaced ones and the last."""


def _shown_rounds(rounds: int) -> list[int]:
    """Return the rounds whose ε a plan lists."""
    if rounds <= _MOST_ROUNDS:
        return list(range(1, rounds + 1))
    return sorted({1} | {rounds * part // _MOST_ROUNDS for part in range(1, _MOST_ROUNDS + 1)})


def _facts(
    plan: ReleasePlan,
    own: Guarantee,
    asked: UnitBudget,
    spent: Composition,
    *,
    summed: Sequence[int],
    beside: Sequence[Guarantee],
    assumptions: Sequence[str],
) -> dict[str, Any]:
    """What is the same of a guarantee that is planned and one that was spent."""
    charged = account(spent, own.delta)
    return {
        "unit": own.unit,
        "neighbouring": own.neighbouring,
        "delta": own.delta,
        "accounts": accounts_of(
            plan,
            own.unit,
            epsilon=charged["epsilon_charged"],
            delta=own.delta,
            summed=summed,
            beside=[each for each in beside if each.unit is own.unit],
        ),
        "assumptions": assumptions_for(own.unit, assumptions),
        "calibration": own.calibration,
        "clip_norm": own.clip_norm,
        "conversion": charged["conversion"],
        "epsilon": charged["epsilon_charged"],
        "epsilon_budget": asked.total,
        "delta_budget": asked.delta,
        "rho": charged["rho"],
        "epsilon_by_conversion": charged["epsilon"],
        "found": found_of_groups(spent),
    }


def found_of_groups(spent: Composition) -> tuple[FoundOf, ...]:
    """What all releases of `spent` tell an attacker, of one of the unit and of groups."""
    return tuple(FoundOf(members=k, alarms=ALARMS, rate=found(spent, members=k)) for k in GROUPS)


def _described(plan: ReleasePlan, own: Guarantee) -> str:
    """The noise that is charged, in a sentence; how it is bounded, for what a party holds."""
    noise = averaged(plan, own)
    said = noise.describe()
    if own.shares is not None:
        on = "each sum" if plan.sampled else "the average"
        said = (
            f"{noise.law} noise of scale {noise.scale:.6g} on {on} of {noise.dimension} "
            f"coordinates is charged: that of {own.shares.honest} honest parties' shares."
        )
    if own.unit is Unit.PARTY:
        said += f" A party's whole contribution is clipped to length {own.clip_norm:g}."
    return said


def noise_of(job: Job, plan: ReleasePlan, own: Guarantee, *, engine: str) -> Noise:
    """A guarantee's noise in the model's own units."""
    noise = averaged(plan, own)
    summed = own in plan.on_sum and not plan.sampled
    return Noise(
        law=noise.law,
        scale=noise.scale,
        scale_of_sum=noise.scale * (plan.parties if summed else 1),
        expected_norm=noise.expected_norm() * own.noise_growth,
        sensitivity=noise.sensitivity,
        point=str(own.noise_point),
        seeded=job.seed is not None,
        shares=_shares(job, plan, own, engine=engine),
    )


def _shares(job: Job, plan: ReleasePlan, own: Guarantee, *, engine: str) -> NoiseShares | None:
    shares = own.shares
    if shares is None:
        return None
    alone = in_process(engine) and job.secure_aggregation.backend == "ideal"
    return NoiseShares(
        parties=shares.parties,
        honest=shares.honest,
        colluders=shares.colluders,
        inflation=shares.inflation,
        scale=shares.scale / own.units(plan.encoding.scale),
        dealt=alone and job.run.deals and plan.of_dealer is not None,
    )


def record_bounds(plan: ReleasePlan, *, rounds: int) -> RecordBounds | None:
    """Both bounds; None for a plan with one guarantee, and where two are accounts of one noise."""
    if len(plan.guarantees) == 1 or plan.sampled:
        return None
    inner, outer = plan.guarantees

    def bound(of: Guarantee) -> Bound:
        conversion, epsilon = Composition.empty().add(of.event, count=rounds).epsilon(inner.delta)
        return Bound(epsilon=epsilon, conversion=conversion)

    charged = plan.charged_by(inner.unit)
    return RecordBounds(
        charged="inner" if charged is inner else "outer", inner=bound(inner), outer=bound(outer)
    )
