"""Run a session: batches of queries, one after another, each a release like any other.

The ledger's checkpoint of a batch has its line, with the noisy integers. A session that is killed
at any point can therefore resume without paying twice. A resumed session gets its first queries
again and returns the earlier answers. A query that differs is a new release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parley.client.algorithms.query_release import QueryRelease
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ACCOUNTANT_VERSION, ReleasePlan
from parley.client.contract.strict_decoding import parse_strict_json
from parley.client.queries.base import Integers, QueryError
from parley.privacy.accounting.privacy_events import Pure
from parley.privacy.accounting.rounding import format_rounded_up
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.ledger.ledger_errors import LedgerCorrupt
from parley.privacy.ledger.recorded_entries import EntryState, RecordedEntry
from parley.privacy.sampling.random_stream import Randomness
from parley.safe_io.json_writing import format_json
from parley.server.planning.query_planner import PlannedBatch
from parley.server.planning.session_terms import SessionTerms
from parley.server.records.session_folder import SessionFolder
from parley.server.rounds.cohort import Cohort, RoundSum
from parley.server.rounds.round_release import commit_release, reserve_release, run_release


@dataclass(frozen=True, kw_only=True)
class ReleasedBatch:
    """One batch's release, as in its line.

    Attributes:
        number: number of the release in the session, from 1.
        batch: its queries with their weights, plain values.
        noisy: one list of `[d]` integers; for a selection, the winner's position.
        epsilon: what was charged.
        spent, left: of the charged budget, after the release.
        by_party: whether every party has its own cells.
        present: if so, the parties that are in the sum.
    """

    number: int
    batch: list[dict[str, Any]]
    noisy: list[list[int]]
    survivors: int
    parties: int
    records: int | None
    epsilon: float
    law: str
    scale: float
    spent: float
    left: float
    by_party: bool = False
    present: list[int] = field(default_factory=list)

    def to_vector(self) -> Integers:
        """Return `[d]` the noisy integers."""
        return np.array(self.noisy[-1], dtype=np.int64)

    def to_line(self) -> str:
        """Return the release as one line of JSON."""
        return format_json(vars(self), compact=True)


@dataclass
class QuerySession:
    """The server's side of a session.

    Attributes:
        folder: the session's folder, locked.
        build_cohort: a plan and its queries → the parties for that release.
        terms: public terms of the session.
        is_server_trusted: whether the server may see a sum without noise, as in a simulation.
        repeatable: earlier releases that have not been requested again.
    """

    folder: SessionFolder
    ledger: Ledger
    budget: DatasetBudget
    build_cohort: Callable[[ReleasePlan, QueryRelease], Cohort]
    terms: SessionTerms
    is_server_trusted: bool
    randomness: Randomness
    released: list[ReleasedBatch] = field(init=False)
    repeatable: list[ReleasedBatch] = field(init=False)

    def __post_init__(self) -> None:
        self.released = self._load_released()
        self.repeatable = list(self.released)

    def _load_released(self) -> list[ReleasedBatch]:
        """Return earlier releases, from the folder and the ledger's checkpoint.

        Raises:
            QueryError: they are of other records than the session has now.
            LedgerCorrupt: the ledger committed more than both contain.
        """
        own = (self.budget.name, f"{self.folder.run_id}/")
        if any(not each.entry.dataset.startswith(own) for each in self.list_charged()):
            raise QueryError(
                "Expected the records that the session began with, got others, which are "
                f"{self.budget.name!r} in its ledger. Begin another session."
            )
        lines = self.folder.load_answers()
        committed = [each.entry.index for each in self.list_charged()]
        kept = self.ledger.get_checkpoint(self.folder.run_id)
        if kept is not None and len(lines) == kept.release - 1:  # killed before it was written
            lines.append(parse_strict_json(kept.data.decode()))
            self.folder.rewrite([format_json(line, compact=True) for line in lines])
        if committed != list(range(1, len(lines) + 1)):
            raise LedgerCorrupt(
                f"Expected the answers of releases {committed} in {self.folder.path}, got "
                f"{len(lines)} lines: answers.jsonl was changed."
            )
        try:
            return [ReleasedBatch(**line) for line in lines]
        except TypeError as error:
            raise LedgerCorrupt(
                f"Expected answers of this version of Parley in {self.folder.path}, got lines "
                "with other keys. Begin another session with the same ledger."
            ) from error

    def list_charged(self) -> tuple[RecordedEntry, ...]:
        """Return the ledger's entry of every release, in order."""
        return self._list_committed(self.folder.run_id)

    def _list_committed(self, run_id: str) -> tuple[RecordedEntry, ...]:
        entries = self.ledger.list_entries(run_id)
        return tuple(each for each in entries if each.state is EntryState.COMMITTED)

    @property
    def number(self) -> int:
        """Number of the next release."""
        return len(self.released) + 1

    def find_earlier(self, planned: PlannedBatch, *, epsilon: float) -> ReleasedBatch | None:
        """Return a resumed session's earlier answer to these queries, if they come in the same
        order.
        """
        asked = (planned.batch.to_json(), epsilon, planned.law, planned.by_party)
        known = self.repeatable[0] if self.repeatable else None
        if known is None or (known.batch, known.epsilon, known.law, known.by_party) != asked:
            self.repeatable = []
            return None
        return self.repeatable.pop(0)

    def compute_remaining(self, budget: DatasetBudget) -> float:
        """Return the unspent ε of the data's budget, or of a part's."""
        return self.ledger.get_account(budget.name, budget.unit).remaining

    def charge_partition(
        self, label: str, epsilon: float, cells: Mapping[str, float]
    ) -> dict[str, DatasetBudget]:
        """Charge `epsilon` for disjoint parts of the data, and open a budget for each of them.

        A `label` is charged once: a resumed session finds it paid for.

        Raises:
            BudgetExceeded: it does not fit what is left; nothing was charged.
        """
        run = f"{self.folder.run_id}/{label}"
        entry = LedgerEntry(
            run_id=run,
            dataset=self.budget.name,
            party="server",
            index=1,
            event=Pure(epsilon=epsilon),
            facts={
                "mechanism": "partition",
                "unit": str(self.budget.unit),
                "neighbouring": str(self.budget.neighbouring),
                "norm": "L1",
                "sensitivity": 1.0,
                "noise_law": "of the cells' answers",
                "noise_parameter": 0.0,
                "accountant": "parley.privacy.accounting.privacy_events",
                "accountant_version": ACCOUNTANT_VERSION,
            },
        )
        if not self._list_committed(run):
            held = self.ledger.reserve([entry])
            self.ledger.commit([each.id for each in held], outcome={"cells": len(cells)})
        budgets = {}
        for place, (text, share) in enumerate(cells.items()):
            name = f"{label}/{place}/{text}"
            own = DatasetBudget(
                name=f"{self.folder.run_id}/{name}"[:200],
                fingerprint=hashlib.sha256(f"{self.folder.run_id}/{name}".encode()).hexdigest(),
                unit=self.budget.unit,
                neighbouring=self.budget.neighbouring,
                epsilon=share,
                delta=0.0,
            )
            (budgets[text],) = self.ledger.register(own)
        return budgets

    def release(
        self, planned: PlannedBatch, *, epsilon: float, budget: DatasetBudget | None = None
    ) -> ReleasedBatch:
        """Release one batch: charge, sum, add noise, commit, write.

        Args:
            epsilon: what was requested for it.
            budget: the budget to charge; the data's by default.

        Raises:
            BudgetExceeded: it does not fit what is left; nothing was charged.
            TooFewSurvivors: in every attempt; nothing was unmasked, and the charge is voided.
            PartyFailed: a party has nothing that it may release; the charge stays.
        """
        plan, budget = planned.plan, budget or self.budget
        self.randomness.check(seeded=plan.seeded)
        instead = planned.replacement
        if instead is not None and instead.trusted and not self.is_server_trusted:
            raise QueryError(
                f"Expected noise of laplace or gaussian with real parties, got {planned.law}: "
                f"{instead.refusal}."
            )
        task = QueryRelease(
            batch=planned.batch,
            neighbouring=plan.primary.neighbouring,
            counting=planned.counting,
            schema=self.terms.facts.schema,
        )

        def update(state: State, plan: ReleasePlan, total: RoundSum) -> State:
            facts = replace(self.terms.facts, records=self._count_records(planned, total))
            stream = self.randomness.open_server_noise(plan.round_number, plan.step)
            shown = planned.compute_release(plan.encoding.decode(total.total), facts, stream)
            return task.update(state, np.array(shown))

        held = reserve_release(self.ledger, planned.build_entries(budget.name))
        cohort = self.build_cohort(plan, task)
        state, total = run_release(
            plan, task.init(), update, cohort=cohort, ledger=self.ledger, reservations=held
        )
        (account,) = [each.account for each in held]
        spent, survivors = account.epsilon, len(total.survivors)
        made = ReleasedBatch(
            number=plan.round_number,
            batch=planned.batch.to_json(),
            noisy=[state["theta"].tolist()],
            survivors=survivors,
            parties=plan.parties,
            records=self._count_records(planned, total),
            epsilon=epsilon,
            law=planned.law,
            scale=planned.compute_scale(survivors),
            spent=spent,
            left=budget.compute_remaining(account.spent_or_held),
            by_party=planned.by_party,
            present=list(total.survivors) if planned.by_party else [],
        )
        line = made.to_line()
        outcome = {"survivors": survivors, "epsilon": format_rounded_up(spent)}
        commit_release(self.ledger, held, outcome=outcome, checkpoint=line.encode())
        self.folder.append(line)
        self.released.append(made)
        return made

    def _count_records(self, planned: PlannedBatch, total: RoundSum) -> int | None:
        """Return N of the survivors, if sizes are public."""
        if planned.has_private_size:
            return None
        return sum(self.terms.sizes[party] for party in total.survivors)
