"""What a run with two guarantees came to: the party's account, and both bounds of a record's.

`party_level` and `record_bounds` of `summary.json`. The record's ε is the lower of two bounds
proved for the released models (privacy.md, section 4); the other is told beside it, with whom it
holds against: the DP-SGD in a party also holds against the server, which sees the sum before its
own noise.
"""

from __future__ import annotations

from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.server.jobs.job import Job
from parley.server.planning.release import account
from parley.server.records.accounts import accounts_of
from parley.server.records.noise_shares import shares_of
from parley.server.records.progress import Progress
from parley.server.records.summary import Bound, GuaranteeSummary, Noise, RecordBounds

__all__ = ["party_level", "record_bounds"]


def party_level(job: Job, plan: ReleasePlan, progress: Progress) -> GuaranteeSummary | None:
    """What the second guarantee came to; None for a plan with one."""
    if len(plan.guarantees) == 1:
        return None
    (party,), (budget,) = plan.guarantees[1:], job.budgets[1:]
    spent = account(progress.spent[party.unit], party.delta)
    grid_units = party.units(plan.encoding.scale)
    scale, norm = party.mechanism.scale, party.mechanism.expected_norm()
    averaged = 1 if plan.sampled else plan.parties  # else on every step's sum
    return GuaranteeSummary(
        unit=str(party.unit),
        neighbouring=str(party.neighbouring),
        epsilon=spent["epsilon_charged"],
        delta=party.delta,
        epsilon_budget=budget.epsilon,
        delta_budget=budget.delta,
        rho=spent["rho"],
        epsilon_by_conversion=spent["epsilon"],
        conversion=spent["conversion"],
        accounts=accounts_of(
            plan,
            party.unit,
            epsilon=spent["epsilon_charged"],
            delta=party.delta,
            summed=[line.parties.summed for line in progress.lines],
        ),
        calibration=party.calibration,
        clip_norm=party.clip_norm,
        noise=Noise(
            law=party.mechanism.law,
            scale=scale / grid_units / averaged,
            scale_of_sum=scale / grid_units,
            expected_norm=norm * party.noise_growth / grid_units / averaged,
            sensitivity=party.mechanism.sensitivity / grid_units / averaged,
            point=party.noise_point.value,
            seeded=job.seed is not None,
            shares=shares_of(job, plan, party, engine=job.run.engine),
        ),
    )


def record_bounds(plan: ReleasePlan, *, rounds: int) -> RecordBounds | None:
    """ε of one record by the DP-SGD in its party (inner) and by the noise on the sum (outer).

    None for a plan with one guarantee, and where two are accounts of one noise.
    """
    if len(plan.guarantees) == 1 or plan.sampled:
        return None
    inner, outer = plan.guarantees

    def bound(of: Guarantee) -> Bound:
        spent = Composition.empty().add(of.event, count=rounds)
        conversion, epsilon = spent.epsilon(inner.delta)
        return Bound(epsilon=epsilon, conversion=conversion)

    charged = plan.charged_by(inner.unit)
    return RecordBounds(
        charged="inner" if charged is inner else "outer", inner=bound(inner), outer=bound(outer)
    )
