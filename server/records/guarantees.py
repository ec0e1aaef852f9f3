"""What the guarantees of a job come to, planned or spent, and both bounds of a record's.

Where two bounds are proved for a record in the released models (privacy.md, section 4), one is
charged and the other is shown beside it: the DP-SGD in a party also holds against the server, which
sees the sum before its own noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Unit
from parley.server.jobs.job import Job
from parley.server.jobs.privacy import UnitBudget
from parley.server.jobs.running import in_process
from parley.server.planning.release import account, averaged
from parley.server.planning.stages import Stage, beside, rounds_of, spent_before
from parley.server.records.accounts import accounts_of
from parley.server.records.guarantee_facts import (
    AfterRound,
    Bound,
    GuaranteeOutlook,
    GuaranteeSummary,
    Noise,
    NoiseShares,
    RecordBounds,
)
from parley.server.records.progress import Progress


def guarantee_summaries(
    job: Job,
    plan: ReleasePlan,
    progress: Progress,
    *,
    engine: str,
    beside: Sequence[Guarantee] = (),
) -> tuple[GuaranteeSummary, ...]:
    """What each guarantee came to; `beside`: of the releases around the rounds that were made."""
    summed = [line.parties.summed for line in progress.lines]
    summaries = []
    for own, asked in zip(plan.guarantees, job.budgets, strict=True):
        spent = account(progress.spent[own.unit], own.delta)
        shared = _facts(plan, own, spent, summed=summed, beside=beside)
        summaries.append(
            GuaranteeSummary(
                **shared,
                epsilon=spent["epsilon_charged"],
                epsilon_budget=asked.total,
                delta_budget=asked.delta,
                rho=spent["rho"],
                epsilon_by_conversion=spent["epsilon"],
                noise=noise_of(job, plan, own, engine=engine),
            )
        )
    return tuple(summaries)


def guarantee_outlook(
    job: Job, stages: Sequence[Stage], own: Guarantee, asked: UnitBudget
) -> GuaranteeOutlook:
    """What a guarantee will come to, if all parties survive every round."""
    rounds = rounds_of(stages)
    plan, noise = rounds.plan, noise_of(job, rounds.plan, own, engine=job.run.engine)
    before = spent_before(stages, stages.index(rounds))[own.unit]
    event = plan.event(own.unit)
    last = account(spent_before(stages, len(stages))[own.unit], own.delta)
    others = [each.plan.primary for each in beside(stages)]
    return GuaranteeOutlook(
        **_facts(plan, own, last, summed=[plan.parties] * job.rounds, beside=others),
        epsilon=asked.total,
        noise_point=noise.point,
        shares=noise.shares,
        law=noise.law,
        scale=noise.scale,
        scale_of_sum=noise.scale_of_sum,
        expected_norm=noise.expected_norm,
        description=_described(plan, own),
        epsilon_charged=last["epsilon_charged"],
        epsilon_by_round=tuple(
            AfterRound(round=number, **account(before.add(event, count=number), own.delta))
            for number in range(1, job.rounds + 1)
        ),
    )


def _facts(
    plan: ReleasePlan,
    own: Guarantee,
    spent: dict[str, Any],
    *,
    summed: Sequence[int],
    beside: Sequence[Guarantee],
) -> dict[str, Any]:
    """What is the same of a guarantee that is planned and one that was spent."""
    return {
        "unit": own.unit,
        "neighbouring": own.neighbouring,
        "delta": own.delta,
        "accounts": accounts_of(
            plan,
            own.unit,
            epsilon=spent["epsilon_charged"],
            delta=own.delta,
            summed=summed,
            beside=[each for each in beside if each.unit is own.unit],
        ),
        "calibration": own.calibration,
        "clip_norm": own.clip_norm,
        "conversion": spent["conversion"],
    }


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
        dealt=alone and job.run.deals and not shares.fine_bits,
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
