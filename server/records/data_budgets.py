"""What data sets have spent and have left, and how often a job still fits: shown before and after.

What is left is said in jobs, too: the most copies of this one that the budget admits beside all
that is spent and held.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.largest_count import find_largest_count
from parley.privacy.accounting.rounding import as_written
from parley.privacy.accounting.subsampled_gaussian import planned_steps
from parley.privacy.ledger.account import Account, Claims
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import NotALedger
from parley.server.jobs.job import Job
from parley.server.planning.run_stages import Stage, rounds_of
from parley.server.records.guarantee_facts import BlockAccount, DataAccount

MOST_JOBS = 1000
"""Copies of a job that are counted."""

_THIS_JOB = "one more such job"
"""No run's name: runs have one without spaces."""


def data_accounts(totals: Iterable[Account], stages: Sequence[Stage]) -> tuple[DataAccount, ...]:
    """Every budget that the job is charged to, and how many more such jobs fit."""
    plan = rounds_of(stages).plan
    costs = {
        each.unit: tuple((stage.plan.event(each.unit), stage.rounds) for stage in stages)
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
            spent=_finite(each, spent := each.charged.largest(each.budget.epsilon_of, blocks)),
            releases=spent.releases,
            held=sum(each.holders.values()),
            left=each.budget.left(each.taken_of(blocks)).epsilon,
            jobs=jobs_that_fit(each, costs[each.budget.unit], blocks),
            blocks=_by_block(each, costs[each.budget.unit], blocks),
        )
        for each in totals
        if each.budget.unit in costs and each.budget.neighbouring is relation
    )


def _by_block(totals: Account, cost: Claims, blocks: Blocks) -> tuple[BlockAccount, ...]:
    """What is left of every block, now and after one job of that cost on some of them."""
    before = totals.by_block(blocks)
    after = totals.holding(_THIS_JOB, cost, blocks).by_block(blocks)
    return tuple(
        BlockAccount(name=name, left=left.epsilon, after=after[name][1].epsilon)
        for name, (_, left) in before.items()
    )


def jobs_that_fit(totals: Account, cost: Claims, blocks: Blocks = ()) -> int:
    """How many jobs of that cost the budget admits beside what is taken; at most `MOST_JOBS`."""

    def admitted(jobs: int) -> bool:
        kinds = [(event, count) for event, count in cost if totals.plans(event)]
        charged = totals.charged
        for event, count in kinds:
            # Jobs of sampled steps are charged one by one: here with equal parts of δₐ.
            limits, spent = totals.budget.limits, totals.charged.of(blocks).values()
            left = limits.reserved - max(map(limits.approximations, spent))
            each = planned_steps(event, count, max(0.0, left) / (jobs * len(kinds)) * (1 - 1e-9))
            charged = charged.adding(each, blocks, jobs)
        claims = tuple((e, jobs * count) for e, count in cost if not totals.plans(e))
        return replace(totals, charged=charged).admits(claims, blocks, run_id=_THIS_JOB)

    return find_largest_count(admitted, most=MOST_JOBS)


def accounts_in_ledger(job: Job, stages: Sequence[Stage]) -> tuple[tuple[DataAccount, ...], str]:
    """The budgets that the job's ledger has for its data, by name, and what else is to be said.

    No data are read: that they are known by another name only a run finds out. Nobody is connected
    to: of a ledger at a URL nothing is said but that.
    """
    if not job.privacy.ledger:
        return (), ""
    if "://" in job.privacy.ledger:  # a plan is made of a job before anybody trusts it
        return (), "planning connects to no URL: `parley ledger show URL` says what is left"
    name = job.privacy.dataset or job.data.source
    try:
        with Ledger.open(job.privacy.ledger, create=False, read_only=True) as ledger:
            totals = [each for each in ledger.totals() if each.budget.name == name]
    except NotALedger:
        return (), f"there is no ledger at {job.privacy.ledger} yet: the run makes it"
    if not totals:
        return (), f"nothing in the ledger is called {name!r}: the run opens a budget for it"
    notes = [
        f"the job asks for privacy.dataset-{asked.keys}epsilon = "
        f"{as_written(asked.dataset_epsilon)}, the ledger has {as_written(each.budget.epsilon)} "
        f"for one {asked.unit}: the run would be refused"
        for asked in job.budgets
        for each in totals
        if each.budget.unit is asked.unit and each.budget.epsilon != asked.dataset_epsilon
    ]
    return data_accounts(totals, stages), "; ".join(notes)


def _finite(account: Account, spent: Composition) -> float | None:
    epsilon = account.budget.epsilon_of(spent)
    return epsilon if math.isfinite(epsilon) else None
