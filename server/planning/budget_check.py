"""Build the data's budgets that a job is charged to, and check that they cover all of it.

Before a run asks a party for anything, it reserves what all its releases need (`reserve_budget`),
or is refused with the numbers. So runs that share a ledger cannot use up each other's budget
half-way.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerError
from parley.privacy.ledger.recorded_entries import EntryState
from parley.server.jobs.job import Job
from parley.server.jobs.privacy_section import UnitBudget
from parley.server.jobs.section_base import JobError
from parley.server.planning.run_stages import RunStage, get_rounds_stage

MAX_DELTA = 0.01
"""Maximum probability with which a record may be revealed; the field's papers use up to 10⁻³."""

_log = logging.getLogger("parley.budgets")


class JobUnaffordable(JobError):
    """A job that costs more than its own budgets, even if they were unspent.

    Attributes:
        cheaper: settings that may make it cheaper, all together.
        accepted: settings that accept its cost, all together; empty if it has no finite one.
    """

    def __init__(
        self, message: str, *, cheaper: Sequence[str] = (), accepted: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.cheaper, self.accepted = tuple(cheaper), tuple(accepted)


def build_budgets(
    job: Job,
    plan: ReleasePlan,
    fingerprint: str,
    contents: str = "",
    rows: NDArray[np.uint64] | None = None,
) -> tuple[DatasetBudget, ...]:
    """Return the data's budget for each of the plan's guarantees, in their order.

    Args:
        contents, rows: digests of the parsed rows, of all and of each, if the rows are here. A
            ledger of only this run stores no digest of a row.
    """
    return tuple(
        DatasetBudget(
            # A plan from only a schema has no source yet.
            name=job.privacy.dataset or job.data.name or "planned",
            fingerprint=fingerprint,
            contents=contents,
            rows=rows if job.privacy.ledger and rows is not None and len(rows) else None,
            reads=plan.blocks,
            unit=guarantee.unit,
            neighbouring=guarantee.neighbouring,
            epsilon=asked.dataset_epsilon,
            delta=(
                total := guarantee.delta if asked.dataset_delta is None else asked.dataset_delta
            ),
            certificate=_choose_certificate(asked, total),
            reserved_delta=asked.reserved_delta * (total / asked.delta) if asked.delta else 0.0,
            insists=job.privacy.certificate != "auto",
        )
        for guarantee, asked in zip(plan.guarantees, job.budgets, strict=True)
    )


def _choose_certificate(budget: UnitBudget, delta: float) -> AccountCertificate:
    """Return the requested certificate; at a total of δ = 0 the only one is the sum of ε."""
    return budget.certificate if delta or not budget.is_shared else AccountCertificate.PURE


def check_affordable(
    job: Job, stages: Sequence[RunStage], budgets: Sequence[DatasetBudget]
) -> None:
    """Raise JobUnaffordable if even unspent budgets could not cover the job.

    Raise JobError if δ is too large for the number of records (`check_delta`).
    """
    check_delta(job, get_rounds_stage(stages).plan)
    beyond: list[tuple[UnitBudget, DatasetBudget, Composition]] = []
    for asked, budget in zip(job.budgets, budgets, strict=True):
        claims = tuple((stage.plan.compute_event(asked.unit), stage.rounds) for stage in stages)
        alone = BudgetAccount(budget=budget).with_hold(stages[0].plan.run_id, claims)
        if not alone.is_within_budget(()):
            beyond.append((asked, budget, alone.spent_or_held))
    if beyond:
        from parley.server.planning.cost_beyond_budget import describe_cost_beyond_budget  # noqa: PLC0415 - spares its code for a job within its budgets

        message, cheaper, accepted = describe_cost_beyond_budget(job, beyond)
        raise JobUnaffordable(message, cheaper=cheaper, accepted=accepted)


def check_delta(job: Job, plan: ReleasePlan) -> None:
    """Compare δ with the number of records (of parties, if those are protected).

    A mechanism that reveals each record in full with probability δ has the same (0, δ). If δ times
    their number is 1 or more, one of them may be revealed. Then log a warning beforehand, or refuse
    if the probability is above 1 in 100 for each.

    Raises JobError.
    """
    records = math.ceil(plan.parties * plan.mean_records)
    counts = {Unit.RECORD: (records, "records"), Unit.PARTY: (plan.parties, "parties")}
    for asked, guarantee in zip(job.budgets, plan.guarantees, strict=True):
        what = describe_large_delta(
            guarantee.delta, *counts[guarantee.unit], key=f"privacy.{asked.key_prefix}delta"
        )
        if what and guarantee.delta > MAX_DELTA:
            raise JobError(what)
        if what:
            _log.warning(what)


def describe_large_delta(delta: float, count: int, many: str, *, key: str) -> str:
    """Return why δ is too large for so many records or parties; empty if it is not."""
    if delta * count < 1:
        return ""
    small = f"{key}=1e-{len(str(count)) + 1:02}"
    remedy = f"`--set {small}`" if "." in key else small
    return (
        f"Expected {key} well below 1/{count}, for {count} {many}, got {format_exact(delta)}: a "
        f"mechanism that reveals one of them in full can satisfy it. {remedy} is small enough."
    )


def register_budgets(ledger: Ledger, budgets: Sequence[DatasetBudget]) -> tuple[DatasetBudget, ...]:
    """Return the budgets to charge, as the ledger has them; log it if the data are known already.

    Raises LedgerCorrupt, LedgerConflict.
    """
    ledger.check()
    known = ledger.register(*budgets)
    asked, found = budgets[0], known[0]
    if asked.name != found.name or asked.fingerprint != found.fingerprint:
        _log.warning(
            "The records of %r, or some of them, are those of data set %r in the ledger, under "
            "another name, saved differently or extended. This run is charged to that data set's "
            "budget.",
            asked.name,
            found.name,
        )
    return known


_PARTIAL_HINT = (
    "`--partial` (run.partial = true) starts anyway, ends after the rounds that fit and keeps "
    "their model, with the noise for all rounds. A job with fewer rounds gets a better model "
    "from the same ε."
)


@contextmanager
def reserve_budget(
    ledger: Ledger, stages: Sequence[RunStage], *, dataset: str, partial: bool = False
) -> Iterator[None]:
    """Reserve the budget for all that the run has yet to release; return what it does not use.

    After a kill the reservation stays until the run is resumed, or freed by `parley ledger free`.

    Args:
        partial: reserve what fits, if that is at least one round.

    Raises BudgetExceeded.
    """
    run_id = stages[0].plan.run_id
    reserved = {
        (each.entry.key, each.entry.index)
        for each in ledger.iterate_entries(run_id)
        if each.state is not EntryState.VOIDED
    }
    claims: dict[BudgetKey, list[tuple[PrivacyEvent, int]]] = {}
    for stage in stages:
        for entry in stage.plan.build_entries(dataset, party="server"):
            begun = sum((entry.key, number) in reserved for number in stage.numbers)
            if stage.rounds > begun:
                claims.setdefault(entry.key, []).append((entry.event, stage.rounds - begun))
    wanted = {key: tuple(own) for key, own in claims.items()}
    blocks = get_rounds_stage(stages).plan.blocks
    try:
        if partial:
            from parley.server.planning.partial_budget import reduce_to_fit  # noqa: PLC0415 - spares its code for a run of all rounds

            wanted = dict(reduce_to_fit(ledger, run_id, wanted, blocks))
        ledger.hold(run_id, wanted, blocks)
    except BudgetExceeded as error:
        if error.fitting:
            error.args = (f"{error} {_PARTIAL_HINT}",)
        raise
    try:
        yield
    except BaseException:
        # A ledger that cannot be reached keeps the reservation, as after a kill.
        with suppress(LedgerError):
            ledger.end_hold(run_id)
        raise
    ledger.end_hold(run_id)
