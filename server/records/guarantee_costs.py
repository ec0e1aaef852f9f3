"""Compute the cost of a job's guarantees, planned or spent, and both bounds of a record's ε.

If two bounds are proved for a record in the released models (privacy.md, section 4), one is charged
and the other is shown next to it. The DP-SGD in a party also holds against the server, which sees
the sum before its own noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from parley.client.contract.assumptions import select_assumptions
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.attack_power import (
    FALSE_ALARM_RATE,
    GROUP_SIZES,
    compute_attack_power,
)
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Adversary, SampledAdversary, Unit
from parley.server.jobs.job import Job
from parley.server.jobs.run_section import is_in_process
from parley.server.planning.job_planner import scale_to_average
from parley.server.planning.run_stages import (
    RunStage,
    compute_spent,
    get_rounds_stage,
    list_assumptions,
    list_extra_guarantees,
)
from parley.server.records.guarantee_facts import (
    AdversaryAccount,
    AttackerRate,
    EpsilonBound,
    GuaranteeSummary,
    NoiseShares,
    NoiseSummary,
    RecordBounds,
)
from parley.server.records.round_line import RoundAccount


def build_accounts(
    plan: ReleasePlan,
    unit: Unit,
    *,
    epsilon: float,
    delta: float,
    contributions: Sequence[int],
    extra_guarantees: Sequence[Guarantee] = (),
) -> tuple[AdversaryAccount, ...]:
    """Return the cost of a unit's guarantee against each adversary, the charged account first.

    Args:
        epsilon, delta: what was charged.
        contributions: number of contributions in the sum of each released round.
        extra_guarantees: the guarantee of each release ahead of the rounds or after them. All
            releases together hold only against adversaries against whom each of them holds.
    """
    by = plan.get_charging_guarantee(unit)
    known = [by.against, *(each.against for each in extra_guarantees)]
    charged = min(known, key=tuple(Adversary).index)
    rows = [AdversaryAccount(adversary=charged, charged=True, epsilon=epsilon, delta=delta)]
    rows += _build_sampling_accounts(by, rows[0], len(contributions), extra_guarantees)
    if by.shares is None:
        return tuple(rows)
    for adversary in (Adversary.READERS, Adversary.OTHERS):
        if adversary is charged:
            continue
        spent: Composition | None = Composition()
        for each in extra_guarantees:
            # The number of shares in its sum is not known here; for readers, what was charged is a
            # bound.
            readers = adversary is Adversary.READERS
            event = each.event if readers else each.compute_event_against(adversary)
            spent = None if spent is None or event is None else spent.add(event)
        for survivors, count in Counter(contributions).items():
            event = by.compute_event_against(adversary, survivors=survivors)
            spent = None if spent is None or event is None else spent.add(event, count=count)
        proved = math.inf if spent is None else spent.compute_lowest_epsilon(delta)[1]
        rows.append(rows[0].with_fields(adversary=adversary, charged=False, epsilon=proved))
    return tuple(rows)


def _build_sampling_accounts(
    by: Guarantee, charged: AdversaryAccount, rounds: int, extra_guarantees: Sequence[Guarantee]
) -> list[AdversaryAccount]:
    """Build the account that is not charged, if parties are sampled by their own coins.

    Against an attacker who knows which rounds a party was in, only the coins are charged. A
    record's account does not depend on what hides its party: it has one account, against both.
    """
    if by.party_sampling_rate == 1:
        return []
    sampled = by.mechanism.sampled
    if sampled is None or by.unit is not Unit.PARTY:
        return [charged.with_fields(adversary=SampledAdversary.EITHER, charged=False)]
    known = sampled.hidden  # The other account then.
    rate = 1.0 if known else sampled.attendance
    other = replace(by, mechanism=replace(sampled, sampling_rate=rate, hidden=not known))
    ahead = Composition.from_events(each.event for each in extra_guarantees)
    _, epsilon = ahead.add(other.event, count=rounds).compute_lowest_epsilon(charged.delta)
    who = SampledAdversary.KNOWN if known else SampledAdversary.HIDDEN
    return [charged.with_fields(adversary=who, charged=False, epsilon=epsilon)]


def build_guarantee_summaries(
    job: Job,
    stages: Sequence[RunStage],
    *,
    engine: str,
    contributions: Sequence[int],
    released: Collection[str],
) -> tuple[GuaranteeSummary, ...]:
    """Build the summary of each guarantee's cost.

    Args:
        contributions: number of contributions in the sum of each released round.
        released: names of the stages before and after the rounds that are complete.
    """
    plan = get_rounds_stage(stages).plan
    counts = [int(each.name in released) if each.name else len(contributions) for each in stages]
    spent = compute_spent(stages, counts)
    extra = list_extra_guarantees(stages, released)
    assumptions = list_assumptions(stages, released)
    summaries = []
    for own, budget in zip(plan.guarantees, job.budgets, strict=True):
        charged = RoundAccount.from_composition(spent[own.unit], own.delta)
        accounts = build_accounts(
            plan,
            own.unit,
            epsilon=charged.epsilon_charged,
            delta=own.delta,
            contributions=contributions,
            extra_guarantees=[each for each in extra if each.unit is own.unit],
        )
        summary = GuaranteeSummary(
            unit=own.unit,
            neighbouring=own.neighbouring,
            delta=own.delta,
            accounts=accounts,
            assumptions=select_assumptions(own.unit, assumptions),
            calibration=own.calibration,
            clip_norm=own.clip_norm,
            conversion=charged.conversion,
            epsilon=charged.epsilon_charged,
            epsilon_budget=budget.total,
            delta_budget=budget.delta,
            rho=charged.rho,
            epsilon_by_conversion=charged.epsilon,
            found=compute_attacker_rates(spent[own.unit]),
            noise=summarize_noise(job, plan, own, engine=engine),
        )
        summaries.append(summary)
    return tuple(summaries)


def compute_attacker_rates(spent: Composition) -> tuple[AttackerRate, ...]:
    """Return what all releases of `spent` reveal to an attacker, for one of the unit and for
    groups.
    """
    rates = {k: compute_attack_power(spent, members=k) for k in GROUP_SIZES}
    return tuple(
        AttackerRate(members=k, alarms=FALSE_ALARM_RATE, rate=rate) for k, rate in rates.items()
    )


def summarize_noise(
    job: Job, plan: ReleasePlan, guarantee: Guarantee, *, engine: str
) -> NoiseSummary:
    """Return a guarantee's noise in the model's own units."""
    noise = scale_to_average(plan, guarantee)
    summed = guarantee in plan.sum_guarantees and not plan.sampled_noises
    return NoiseSummary(
        law=noise.law,
        scale=noise.scale,
        scale_of_sum=noise.scale * (plan.parties if summed else 1),
        expected_norm=noise.expected_norm() * guarantee.noise_growth,
        sensitivity=noise.sensitivity,
        point=str(guarantee.noise_point),
        seeded=job.seed is not None,
        shares=_summarize_shares(job, plan, guarantee, engine=engine),
    )


def _summarize_shares(
    job: Job, plan: ReleasePlan, guarantee: Guarantee, *, engine: str
) -> NoiseShares | None:
    shares = guarantee.shares
    if shares is None:
        return None
    alone = is_in_process(engine) and job.secure_aggregation.backend == "ideal"
    return NoiseShares(
        parties=shares.parties,
        honest=shares.honest,
        colluders=shares.colluders,
        inflation=shares.noise_ratio,
        scale=shares.scale / guarantee.compute_unit_scale(plan.encoding.scale),
        dealt=alone and job.run.draws_central_noise and plan.central_noise_plan is not None,
    )


def compute_record_bounds(plan: ReleasePlan, *, rounds: int) -> RecordBounds | None:
    """Return both bounds; None with one guarantee, or if two are accounts of the same noise."""
    if len(plan.guarantees) == 1 or plan.sampled_noises:
        return None
    inner, outer = plan.guarantees

    def bound(of: Guarantee) -> EpsilonBound:
        spent = Composition().add(of.event, count=rounds)
        conversion, epsilon = spent.compute_lowest_epsilon(inner.delta)
        return EpsilonBound(epsilon=epsilon, conversion=conversion)

    charged = "inner" if plan.get_charging_guarantee(inner.unit) is inner else "outer"
    return RecordBounds(charged=charged, inner=bound(inner), outer=bound(outer))
