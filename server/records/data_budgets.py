"""Compute what data sets have spent and have left, and how many more such jobs fit.

Plans show it before a run, summaries after it. The remaining budget is also counted in jobs: the
maximum number of copies of this job that the budget admits in addition to all that is spent and
reserved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.budget_capacity import find_largest_count
from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.account import BudgetAccount, Claims
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerError, NotALedger
from parley.privacy.ledger.registration import check_known_accounts
from parley.server.jobs.job import Job
from parley.server.planning.budget_check import build_budgets
from parley.server.planning.run_stages import RunStage, get_rounds_stage
from parley.server.records.guarantee_facts import BlockAccount, DataAccount

MAX_JOBS = 1000
"""Maximum number of copies of a job that are counted."""

_ANOTHER_JOB = "one more such job"
"""Name of a hypothetical run. Run names have no spaces, so that it matches none."""

_PLANNED_STEPS = "parley.privacy.accounting.subsampled_gaussian:build_planned_steps"
"""Imported only for jobs with sampled steps."""


def build_data_accounts(
    totals: Iterable[BudgetAccount], stages: Sequence[RunStage]
) -> tuple[DataAccount, ...]:
    """Return every budget that the job is charged to, and how many more such jobs fit."""
    plan = get_rounds_stage(stages).plan
    costs = {
        each.unit: tuple((stage.plan.compute_event(each.unit), stage.rounds) for stage in stages)
        for each in plan.guarantees
    }
    relation, blocks = plan.primary.neighbouring, plan.blocks
    return tuple(
        DataAccount(
            name=each.budget.name,
            unit=each.budget.unit,
            neighbouring=each.budget.neighbouring,
            epsilon=each.budget.epsilon,
            delta=each.budget.delta,
            certificate=str(each.budget.certificate),
            spent=_compute_finite_epsilon(
                each, spent := each.charged.find_largest(each.budget.compute_epsilon, blocks)
            ),
            releases=spent.releases,
            held=sum(each.held_counts.values()),
            left=each.budget.compute_remaining(each.compute_spent_or_held(blocks)),
            jobs=count_fitting_jobs(each, costs[each.budget.unit], blocks),
            blocks=_build_block_accounts(each, costs[each.budget.unit], blocks),
        )
        for each in totals
        if each.budget.unit in costs and each.budget.neighbouring is relation
    )


def _build_block_accounts(
    totals: BudgetAccount, cost: Claims, blocks: Blocks
) -> tuple[BlockAccount, ...]:
    """Return the remaining budget of every block, now and after one job of that cost on some of
    them.
    """
    before = totals.compute_by_block(blocks)
    after = totals.with_hold(_ANOTHER_JOB, cost, blocks).compute_by_block(blocks)
    both = [(name, left, after[name][1]) for name, (_, left) in before.items()]
    return tuple(BlockAccount(name=name, left=left, after=then) for name, left, then in both)


def count_fitting_jobs(totals: BudgetAccount, cost: Claims, blocks: Blocks = ()) -> int:
    """Return how many jobs of that cost the budget still admits; at most `MAX_JOBS`."""

    def admitted(jobs: int) -> bool:
        kinds = [(event, count) for event, count in cost if totals.must_plan(event)]
        charged = totals.charged
        for event, count in kinds:
            # Jobs of sampled steps are charged one by one, here with equal parts of δₐ.
            budget, spent = totals.budget, totals.charged.get_compositions(blocks).values()
            left = budget.reserved_delta - max(map(budget.compute_used_delta, spent))
            each = load_attribute(_PLANNED_STEPS)(
                event, count, max(0.0, left) / (jobs * len(kinds)) * (1 - 1e-9)
            )
            charged = charged.add(each, blocks, jobs)
        claims = tuple((e, jobs * count) for e, count in cost if not totals.must_plan(e))
        return replace(totals, charged=charged).can_hold(claims, blocks, run_id=_ANOTHER_JOB)

    return find_largest_count(admitted, maximum=MAX_JOBS)


@dataclass(frozen=True, kw_only=True)
class LedgerOutlook:
    """Entries of the job's ledger for its data, before a run."""

    accounts: tuple[DataAccount, ...] = ()
    note: str = ""
    refusal: str | None = None


def load_ledger_outlook(job: Job, stages: Sequence[RunStage]) -> LedgerOutlook:
    """Return the ledger's budgets for the job's data by name, and why it would refuse the run.

    It reads no data; only a run discovers that they are known by another name. It opens no
    connection, so that for a ledger at a URL there is only the note.

    Raises:
        NotALedger: the file at its place is of another kind.
    """
    if not job.privacy.ledger:
        return LedgerOutlook()
    # A plan is made before the job is trusted: it must not open connections.
    if "://" in job.privacy.ledger:
        note = "planning opens no connection: `parley ledger show URL` shows what is left"
        return LedgerOutlook(note=note)
    name = job.privacy.dataset or job.data.name
    try:
        with Ledger.open(job.privacy.ledger, create=False, read_only=True) as ledger:
            totals = [each for each in ledger.list_accounts() if each.budget.name == name]
    except NotALedger:
        place = Path(job.privacy.ledger)
        if place.is_file() and place.stat().st_size:
            raise
        note = f"there is no ledger at {job.privacy.ledger} yet: the run creates it"
        return LedgerOutlook(note=note)
    if not totals:
        note = (
            f"the ledger has no data set {name!r}: the run opens a budget for it, unless the "
            "ledger knows its records"
        )
        return LedgerOutlook(note=note)
    refusal = _find_refusal(job, stages, totals)
    return LedgerOutlook(accounts=build_data_accounts(totals, stages), refusal=refusal)


def _find_refusal(
    job: Job, stages: Sequence[RunStage], totals: Sequence[BudgetAccount]
) -> str | None:
    """Return why the ledger would refuse a run of the job; None if it would not."""
    plan = get_rounds_stage(stages).plan
    known = {each.budget.unit: each for each in totals}
    try:
        check_known_accounts(known, build_budgets(job, plan, totals[0].budget.fingerprint))
        for unit, account in () if job.run.partial else known.items():
            claims = tuple((each.plan.compute_event(unit), each.rounds) for each in stages)
            if not account.can_hold(claims, plan.blocks, run_id=_ANOTHER_JOB):
                raise BudgetExceeded(account, claims, plan.blocks, run_id=_ANOTHER_JOB)
    except LedgerError as error:
        return str(error)
    return None


def _compute_finite_epsilon(account: BudgetAccount, spent: Composition) -> float | None:
    epsilon = account.budget.compute_epsilon(spent)
    return epsilon if math.isfinite(epsilon) else None
