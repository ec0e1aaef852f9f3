"""Define `parley.Session`, which asks several parties for statistics under one budget.

with parley.Session("data/party-*.csv", schema="patients.schema.toml", epsilon=1) as s:
    s.where(col.age > 60).group_by("ward").count(epsilon=0.1)
    s.mean("stay", epsilon=0.1)
    with s.batch(epsilon=0.3) as b:          # ONE secure sum, the budget split
        wards, stay = b.histogram("ward"), b.mean("stay")
        print(b.plan())                     # expected errors, before anything is spent
    s.remaining
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from parley.analytics.adaptive_queries import check_alone, release_in_steps, with_earlier
from parley.analytics.answer import Answer
from parley.analytics.answer_intervals import Intervals
from parley.analytics.click_log_release import ClickLogQueries
from parley.analytics.disjoint_cells import PartitionQueries
from parley.analytics.kmeans_lloyd import LloydQueries
from parley.analytics.quantile_search import QuantileSearch
from parley.analytics.query_api import QueryMethods, SessionBatch, is_by_party
from parley.analytics.query_remedies import find_query_advice
from parley.analytics.recorded_answers import decode_answers
from parley.analytics.session_page import write_session_page
from parley.analytics.sql_queries import build_frame, parse_sql
from parley.client.queries.base import Query, QueryError
from parley.client.queries.filters.expressions import Expression
from parley.privacy.accounting.rounding import format_exact, format_rounded_down
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.safe_io.plurals import format_noun
from parley.secure_agg.encoding import RingTooSmall
from parley.server.planning.query_planner import PlannedBatch, plan_batch
from parley.server.planning.session_terms import SessionTerms

if TYPE_CHECKING:
    import polars as pl


class Session(PartitionQueries, LloydQueries, ClickLogQueries, QuantileSearch):
    """Queries to several parties.

    Args:
        data: Files, one per party (a glob or a list), or in-memory frames, one per party. With
            `parties`, one file or frame is split into that many parties, in its order. None with
            `deployment`.
        schema: Schema of the columns, as a file, a `Schema`, or in short form:
            {"age": (0, 120), "ward": ["a", "b"]}. It needs no label.
        deployment: Instead of data: the folder of a server whose parties are asked.
        epsilon, delta: Budget of all queries that are ever asked of these data in this ledger.
        out: Folder of the session; by default a new one in `runs`.
        resume: Folder of a session to resume, with its settings.
        settings: Other keys of [session] in a query file, with underscores. `parley query
            --print-query` describes them.

    Raises:
        QueryError, SchemaError, DataError: the settings or data cannot be used.
        LedgerConflict: the ledger has the data with another budget.
    """

    def __init__(
        self, data: Any = None, *, resume: str | Path | None = None, **settings: Any
    ) -> None:
        from parley.analytics.session_opening import open_session  # noqa: PLC0415 - start-up: `query --plan` opens nothing (polars takes 0.2 s)

        self._stack = ExitStack()
        try:
            self._session, own = open_session(
                self._stack, data, resume=None if resume is None else Path(resume), **settings
            )
        except BaseException:
            self._stack.close()
            raise
        self._law: str = own.law
        self._batches = list[SessionBatch]()
        self._intervals = Intervals(simultaneous=own.simultaneous, sampling=own.sampling)
        self._open = True

    def __repr__(self) -> str:
        parties, records = self.terms.parties, self.records
        known = "" if records is None else f", {records:,} {format_noun(records, 'record')}"
        budget = format_exact(self._session.budget.epsilon)
        left = format_rounded_down(self.remaining, 4)
        return (
            f"<Session {parties} {format_noun(parties, 'party')}{known}, "
            f"epsilon left {left} of {budget}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._batches = []
        self.close()

    def close(self) -> None:
        """Close the session. Its releases stay in its folder.

        Raises:
            QueryError: a batch's `with` block never ended, so its queries were neither asked nor
                charged.
        """
        self._open = False
        self._stack.close()
        never, self._batches = [each for each in self._batches if each.pending], []
        if never:
            raise QueryError(
                f"Expected every batch to be finished, got one with {never[0].pending} open "
                "queries. Ask them inside `with session.batch(…) as b`. None of them was asked or "
                "charged."
            )

    @property
    def folder(self) -> Path:
        """Folder with the answers and the ledger."""
        return self._session.folder.path

    @property
    def terms(self) -> SessionTerms:
        """Public terms, fixed for all queries."""
        return self._session.terms

    @property
    def records(self) -> int | None:
        """N, which is public under replace-one; None if it is private."""
        return self.terms.facts.records

    @property
    def remaining(self) -> float:
        """ε that is left of the budget."""
        return self.compute_remaining(self._session.budget)

    def ask(
        self,
        query: Query,
        *,
        epsilon: float | None = None,
        law: str | None = None,
        share: float | None = None,
        by: str | None = None,
        **other: Any,
    ) -> Answer:
        """Ask one query.

        Args:
            by: "party" for an answer per party; None for one answer of all parties together.

        Raises:
            QueryError, SchemaError: the query is not valid; no budget was charged.
            BudgetExceeded: it costs more than is left; no budget was charged.
        """
        if other:
            raise QueryError(
                f"Expected only epsilon, law and by with a query, got {', '.join(other)}. "
                "Select and group before it, for example session.where(…).group_by(…)."
            )
        if share is not None:
            raise QueryError(
                "Expected epsilon with a single query, got a share, which is for batches."
            )
        if epsilon is None:
            raise QueryError("Expected epsilon, the price of the query, got none.")
        (answer,) = self.release([query], epsilon=epsilon, law=law, by_party=is_by_party(by))
        return answer

    def batch(self, epsilon: float, *, law: str | None = None) -> SessionBatch:
        """Begin a batch of queries, which are released in one sum for one price."""
        self._check_open()
        self._batches.append(SessionBatch(self, epsilon=epsilon, law=law))
        return self._batches[-1]

    def sql(self, text: str, *, epsilon: float, law: str | None = None) -> pl.DataFrame:
        """Run one SELECT that costs `epsilon` in total: see `parley.analytics.sql_queries` (extra
        parley[sql]).
        """
        self._check_open()
        statement = parse_sql(text, self.schema)
        return build_frame(statement, self.release(statement.queries, epsilon=epsilon, law=law))

    def plan(self, queries: Sequence[Query], *, epsilon: float, **how: Any) -> PlannedBatch:
        """Plan a batch's release, without asking a party or charging the budget."""
        self._check_open()
        check_alone(queries, by_party=how.get("by_party", False))
        return plan_batch(
            queries,
            self.terms,
            epsilon=epsilon,
            run_id=self._session.folder.run_id,
            number=self._session.number,
            **{"law": self._law, **{k: v for k, v in how.items() if v is not None}},
        )

    def check_budget(
        self, planned: Sequence[PlannedBatch], budget: DatasetBudget | None = None
    ) -> None:
        """Refuse releases that the remaining budget does not cover. This charges nothing.

        In a resumed session the first of them are those that it already has.

        Raises:
            BudgetExceeded: they cost more than is left.
        """
        own = self._session
        new = tuple((each.event, 1) for each in planned[len(own.repeatable) :])
        own.ledger.check_hold(own.folder.run_id, {(budget or own.budget).key: new})

    def _select_subset(self, where: Expression | None, by: tuple[str, ...]) -> QueryMethods:
        self._check_open()
        return super()._select_subset(where, by)

    def _check_open(self) -> None:
        if not self._open:
            raise QueryError("Expected an open session, got a closed one.")

    def release(
        self,
        queries: Sequence[Query],
        *,
        epsilon: float,
        law: str | None = None,
        shares: Sequence[float] | None = None,
        budget: DatasetBudget | None = None,
        by_party: bool = False,
    ) -> list[Answer]:
        """Release queries together, in one sum for one price; `batch` is easier to use.

        `budget` is charged, for example a partition cell's; None for the data's. With `by_party`,
        each party has its own answer.
        """
        plan = partial(self.plan, queries, shares=shares, by_party=by_party)
        one = partial(self._release_once, budget=budget or self._session.budget)
        try:
            planned = plan(epsilon=epsilon, law=law)
            if not any(query.step_shares for query in queries):
                return one(queries, planned, epsilon=epsilon)
            if not self._session.repeatable:
                self.check_budget([planned], budget)
            return [release_in_steps(one, self, queries[0], planned, epsilon=epsilon)]
        except (BudgetExceeded, CalibrationError, RingTooSmall) as error:
            if budget is None:
                said = find_query_advice(plan, self.totals, epsilon=epsilon, law=law or self._law)
                error.args = (f"{error} {said}".rstrip(),)
            raise

    def _release_once(
        self,
        queries: Sequence[Query],
        planned: PlannedBatch,
        *,
        epsilon: float,
        budget: DatasetBudget,
    ) -> list[Answer]:
        """Release queries once, or return the stored release of a resumed session."""
        known = self._session.find_earlier(planned, epsilon=epsilon)
        released = known or self._session.release(planned, epsilon=epsilon, budget=budget)
        return decode_answers(
            released,
            self.terms,
            event=planned.event,
            run=planned.plan.run_id,
            budget=budget,
            queries=queries,
            intervals=self._intervals,
        )

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All answers so far, in order; in a resumed session also the earlier ones."""
        entries = self._session.list_charged()
        budgets = {each.budget.name: each.budget for each in self._session.ledger.list_accounts()}
        found = list[Answer]()
        for released, charged in zip(self._session.released, entries, strict=True):
            entry = charged.entry
            found += decode_answers(
                released, self.terms, event=entry.event, run=entry.run_id,
                budget=budgets[entry.dataset], intervals=self._intervals,
            )  # fmt: skip
        return with_earlier(found)

    @property
    def totals(self) -> BudgetAccount:
        """The data's account in the ledger: its budget and all charges to it."""
        own, accounts = self._session.budget.key, self._session.ledger.list_accounts()
        return next(each for each in accounts if each.budget.key == own)

    def report(self, path: str | Path | None = None, *, table_one: int = 0) -> Path:
        """Write a page with every answer and the course of the budget; by default in the folder.

        Args:
            table_one: Number of the release to show as a table one; 0 for none.
        """
        self._check_open()
        target = Path(path) if path else self.folder / "report.html"
        return write_session_page(
            self.answers, self.totals, self.folder.name, target, table_one=table_one
        )
