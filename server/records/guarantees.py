"""What the guarantees of a run came to, one by one, and both bounds of a record's.

`guarantees` and `record_bounds` of `summary.json`. Where two bounds are proved for a record in the
released models (privacy.md, section 4), one is charged and the other is shown beside it: the DP-SGD
in a party also holds against the server, which sees the sum before its own noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.server.jobs.job import Job
from parley.server.jobs.running import in_process
from parley.server.planning.release import account, averaged
from parley.server.records.accounts import accounts_of
from parley.server.records.guarantee_summary import (
    Bound,
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
    """What each guarantee came to, ε and δ as spent by the lowest proved conversion.

    Args:
        beside: of the releases ahead of the rounds and after them that were made.
    """
    summed = [line.parties.summed for line in progress.lines]
    summaries = []
    for own, asked in zip(plan.guarantees, job.budgets, strict=True):
        spent = account(progress.spent[own.unit], own.delta)
        summaries.append(
            GuaranteeSummary(
                unit=str(own.unit),
                neighbouring=str(own.neighbouring),
                epsilon=spent["epsilon_charged"],
                delta=own.delta,
                epsilon_budget=asked.total,
                delta_budget=asked.delta,
                rho=spent["rho"],
                epsilon_by_conversion=spent["epsilon"],
                conversion=spent["conversion"],
                accounts=accounts_of(
                    plan,
                    own.unit,
                    epsilon=spent["epsilon_charged"],
                    delta=own.delta,
                    summed=summed,
                    beside=[each for each in beside if each.unit is own.unit],
                ),
                calibration=own.calibration,
                clip_norm=own.clip_norm,
                noise=noise_of(job, plan, own, engine=engine),
            )
        )
    return tuple(summaries)


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
        shares=shares_of(job, plan, own, engine=engine),
    )


def shares_of(job: Job, plan: ReleasePlan, own: Guarantee, *, engine: str) -> NoiseShares | None:
    """How a guarantee's noise is split among the parties; None where it is not."""
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
    """ε of one record by the DP-SGD in its party (inner) and by the noise on the sum (outer).

    None for a plan with one guarantee, and where two are accounts of one noise.
    """
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
