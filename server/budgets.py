"""The data's budgets that a job is charged to, and whether they can bear all of it."""

from __future__ import annotations

from collections.abc import Sequence

from client.plan import ReleasePlan
from privacy.events import Composition, Event
from privacy.ledger import DatasetBudget
from server.job import Job, JobError

__all__ = ["budgets_of", "check_affordable"]


def budgets_of(job: Job, plan: ReleasePlan, fingerprint: str) -> tuple[DatasetBudget, ...]:
    """The budget of the plan's unit, and beside it the parties' where the plan has two."""
    privacy, asked = job.privacy, job.party_budget
    epsilon, delta = privacy.dataset_epsilon, privacy.dataset_delta
    own = DatasetBudget(
        name=privacy.dataset or job.data.source,
        fingerprint=fingerprint,
        unit=plan.unit,
        neighbouring=plan.neighbouring,
        epsilon=privacy.epsilon if epsilon == "auto" else epsilon,
        delta=plan.delta if delta == "auto" else delta,
    )
    if plan.party_level is None or asked is None:
        return (own,)
    epsilon, delta = privacy.dataset_party_epsilon, privacy.dataset_party_delta
    return (
        own,
        own.of_parties(
            epsilon=asked[0] if epsilon == "auto" else epsilon,
            delta=asked[1] if delta == "auto" else delta,
        ),
    )


def check_affordable(
    job: Job, plan: ReleasePlan, budgets: Sequence[DatasetBudget], *, before: Event | None
) -> None:
    """Refuses a job that its budgets could not bear even if they were whole.

    Args:
        before: what is released ahead of the first round (private components), else None.

    Raises:
        JobError: the ε it comes to, and what could be chosen instead.
    """
    spent = Composition.empty() if before is None else Composition.empty().add(before)
    totals = [spent.add(plan.event, count=job.rounds)]
    if plan.party_level is not None:
        totals.append(Composition.empty().add(plan.party_level.event, count=job.rounds))
    keys = ("dataset-epsilon", "dataset-party-epsilon")
    for total, budget, key in zip(totals, budgets, keys, strict=False):
        if budget.admits(total):
            continue
        conversion, epsilon = total.epsilon(budget.delta)
        raise JobError(
            f"This job costs ε = {epsilon:.6g} at δ = {budget.delta:g} by {conversion} (unit "
            f"{budget.unit}, {budget.neighbouring}), more than its data's budget of "
            f"ε = {budget.epsilon:g}. Choose another noise (privacy.noise; for fedavg "
            f"dp-sgd.noise-multiplier), or accept the cost with privacy.{key}."
        )
