"""Compute what the guarantees of a job will cost, before it runs."""

from __future__ import annotations

from collections.abc import Sequence

from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.threat_model import Unit
from parley.server.jobs.job import Job
from parley.server.planning.job_planner import scale_to_average
from parley.server.planning.run_stages import (
    RunStage,
    compute_spent,
    get_rounds_stage,
)
from parley.server.records.guarantee_costs import build_guarantee_summaries
from parley.server.records.guarantee_facts import (
    GuaranteeSummary,
)
from parley.server.records.round_line import RoundAccount


def build_planned_guarantees(job: Job, stages: Sequence[RunStage]) -> tuple[GuaranteeSummary, ...]:
    """Return what each guarantee will cost if all parties survive every round."""
    plan = get_rounds_stage(stages).plan
    whole = build_guarantee_summaries(
        job,
        stages,
        engine=job.run.engine,
        contributions=[plan.parties] * job.rounds,
        released=[each.name for each in stages],
    )
    ahead = stages[: stages.index(get_rounds_stage(stages))]
    before = compute_spent(stages, [each.rounds for each in ahead])
    summaries = []
    for own, summary in zip(plan.guarantees, whole, strict=True):
        event = plan.compute_event(own.unit)
        by_round = tuple(
            RoundAccount.from_composition(
                before[own.unit].add(event, count=number), own.delta, number=number
            )
            for number in _list_shown_rounds(job.rounds)
        )
        # The plan states the sensitivity elsewhere, and nothing has been drawn yet.
        noise = summary.noise.model_copy(update={"sensitivity": None, "seeded": None})
        said = {"description": _describe_noise(plan, own), "epsilon_by_round": by_round}
        summaries.append(summary.model_copy(update={"noise": noise, **said}))
    return tuple(summaries)


_MAX_ROUNDS = 1000
"""Maximum number of rounds whose ε a plan lists; of more, it lists evenly spaced ones and the last.
"""


def _list_shown_rounds(rounds: int) -> list[int]:
    """Return the rounds whose ε a plan lists."""
    if rounds <= _MAX_ROUNDS:
        return list(range(1, rounds + 1))
    return sorted({1} | {rounds * part // _MAX_ROUNDS for part in range(1, _MAX_ROUNDS + 1)})


def _describe_noise(plan: ReleasePlan, guarantee: Guarantee) -> str:
    """Format the charged noise in a sentence, with the clipping bound for a party's guarantee."""
    noise = scale_to_average(plan, guarantee)
    said = noise.describe()
    if guarantee.shares is not None:
        on = "each sum" if plan.sampled_noises else "the average"
        said = (
            f"{noise.law} noise of scale {noise.scale:.6g} on {on} of {noise.dimension} "
            f"coordinates is charged: that of {guarantee.shares.honest} honest parties' shares."
        )
    if guarantee.unit is Unit.PARTY:
        said += f" A party's whole contribution is clipped to length {guarantee.clip_norm:g}."
    return said
