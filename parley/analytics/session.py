"""`parley.Session`: ask several parties for statistics, under one budget.

with parley.Session("data/party-*.csv", schema="patients.schema.toml", epsilon=1) as s:
    s.where(col.age > 60).group_by("ward").count(epsilon=.1)
    s.mean("stay", epsilon=.1)
    with s.batch(epsilon=.3) as b:          # ONE secure sum, the budget split
        wards, stay = b.histogram("ward"), b.mean("stay")
        print(b.plan())                     # expected errors, before anything is spent
    s.remaining
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from parley.analytics.answer import Answer
from parley.analytics.answering import answers_of
from parley.analytics.asking import by_party
from parley.analytics.batch import Batch, Part
from parley.analytics.composed import Composed
from parley.analytics.intervals import Intervals
from parley.analytics.sql import frame_of_answers, parse_sql
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, QueryError
from parley.client.where import Expression
from parley.privacy.ledger.budget import DatasetBudget, DatasetTotals
from parley.server.planning.queries import PlannedBatch, plan_batch
from parley.server.planning.query_terms import Terms

if TYPE_CHECKING:
    import polars as pl


class Session(Composed):
    """Queries to several parties.

    Args:
        data: files, one a party (a glob, or a list), or frames in memory, one a party; one file or
            frame with `parties` is split among as many, in its order. None with `deployment`.
        schema: what the columns are: a file, or a `Schema`.
        deployment: instead of data: the folder of a server whose parties are asked.
        dataset: with a deployment: the name that parties serve the data under.
        epsilon, delta: the budget of everything that is ever asked of these data in this ledger.
        neighbouring: replace-one, or add-or-remove-one.
        parties: how many, where one file or frame is split.
        min_survivors: least number of parties in a sum; default two thirds, and more than half.
        corrupt: parties that may collude with the server; default a tenth.
        noise_point: server, which a simulation may trust; share: by every party before it masks.
            Real parties add shares.
        masked: whether a simulation runs the masked protocol in full.
        law: laplace, gaussian, or auto: whichever errs less, for each batch.
        simultaneous: intervals hold for all cells of an answer at once, not for each by itself.
        sampling: intervals cover sampling error beside the noise, where the query has such.
        most_records: with add-or-remove-one: what a party with more is cut to, for sums to fit.
        ledger: a shared ledger; default the session's own.
        out: the session's folder; default a new one in `runs`.
        resume: a session's folder to go on with; its settings are used.
        unit: record, person or party: what the noise hides.
        records_per_id: with unit person: how many records of one count in a party.
        id: of a simulation with it: the column that says whose a record is.
        records_per_party: with unit party: as many records a party counts for at most.
        seed: of a simulation's noise, which then protects nobody.
        faults: of a simulation: who drops out, as `run.faults` has it.
        engine: of a simulation: fast, or ray, which deals its parties to workers; `ray_address` and
            `workers` say where and how many.

    Raises:
        QueryError, SchemaError, DataError: settings or data that cannot be used.
        LedgerConflict: the ledger knows the data with another budget.
    """

    def __init__(
        self, data: Any = None, *, resume: str | Path | None = None, **settings: Any
    ) -> None:
        from parley.analytics.opening import open_session  # noqa: PLC0415 - start-up: `query --plan` opens nothing (polars, SQLAlchemy take .4 s)

        self._stack = ExitStack()
        try:
            self._session, own = open_session(
                self._stack, data, resume=None if resume is None else Path(resume), **settings
            )
        except BaseException:
            self._stack.close()
            raise
        self._terms = self._session.terms
        self._law: str = own.law
        self._batches = list[Batch]()
        self._intervals = Intervals(simultaneous=own.simultaneous, sampling=own.sampling)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._batches = []
        self.close()

    def close(self) -> None:
        """Ends the session; what it released stays in its folder.

        Raises:
            QueryError: a batch was never left: nothing of it was asked, nothing was charged.
        """
        self._open = False
        self._stack.close()
        never, self._batches = [each for each in self._batches if each.waiting], []
        if never:
            raise QueryError(
                f"Expected every batch to be left, got one of {never[0].waiting} queries that "
                "never was: ask them within `with session.batch(…) as b`. Nothing of it was asked "
                "or charged."
            )

    @property
    def folder(self) -> Path:
        """Where its answers and its ledger are."""
        return self._session.folder.path

    @property
    def terms(self) -> Terms:
        """What is public, and settled for all queries."""
        return self._terms

    @property
    def schema(self) -> Schema:
        """Of all parties."""
        return self._terms.facts.schema

    @property
    def records(self) -> int | None:
        """N, which is public under replace-one; None where it is not."""
        return self._terms.facts.records

    @property
    def remaining(self) -> float:
        """ε that is left of the budget."""
        self._check_open()
        return self._session.left

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
        """Asks one query.

        Args:
            query: what.
            epsilon: what it costs, whole.
            law: laplace, gaussian or auto; default the session's.
            share: for batches alone.
            by: "party" for each party's own answer; None for one of all together.
            other: refused.

        Raises:
            QueryError, SchemaError: it cannot be asked; nothing was charged.
            BudgetExceeded: it costs more than is left; nothing was charged.
        """
        if other:
            raise QueryError(f"Expected epsilon and law with a query, got {', '.join(other)}.")
        if share is not None:
            raise QueryError("Expected epsilon with a single query, got a share of a batch.")
        if epsilon is None:
            raise QueryError("Expected epsilon, what the query may cost, got none.")
        (answer,) = self.release(
            [query], epsilon=epsilon, law=law, shares=None, by_party=by_party(by)
        )
        return answer

    def batch(self, epsilon: float, *, law: str | None = None) -> Batch:
        """Several queries in one sum, for one price."""
        self._check_open()
        self._batches.append(Batch(self, epsilon=epsilon, law=law))
        return self._batches[-1]

    def sql(self, text: str, *, epsilon: float, law: str | None = None) -> pl.DataFrame:
        """One SELECT, all of it for `epsilon`: see `parley.analytics.sql` (extra parley[sql])."""
        self._check_open()
        statement = parse_sql(text, self.schema)
        answers = self.release(statement.queries, epsilon=epsilon, law=law)
        return frame_of_answers(statement, answers)

    def plan(self, queries: Sequence[Query], *, epsilon: float, **how: Any) -> PlannedBatch:
        """What a batch would release; nothing is asked, nothing is charged."""
        self._check_open()
        return plan_batch(
            queries,
            self._terms,
            epsilon=epsilon,
            run_id=self._session.folder.run_id,
            number=self._session.number,
            **{"law": self._law, **{k: v for k, v in how.items() if v is not None}},
        )

    def _part(self, where: Expression | None, by: tuple[str, ...]) -> Any:
        self._check_open()
        return Part(self, where, by)

    def _check_open(self) -> None:
        if not self._open:
            raise QueryError("Expected an open session, this one was closed.")

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
        """Asks queries together, in one sum for one price; `batch` reads better in a program.

        `budget` is charged, a partition's cell's; None: the data's. `by_party`: every party's own
        answers.
        """
        planned = self.plan(queries, epsilon=epsilon, law=law, shares=shares, by_party=by_party)
        known = self._session.asked_before(planned, epsilon=epsilon)
        released = known or self._session.release(planned, epsilon=epsilon, budget=budget)
        return answers_of(
            released,
            self._terms,
            event=planned.event,
            run=planned.plan.run_id,
            budget=budget or self._session.budget,
            asked=queries,
            intervals=self._intervals,
        )

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Every answer so far, in order: a session that goes on has those of before, too."""
        entries = self._session.charged()
        budgets = {each.budget.name: each.budget for each in self._session.ledger.totals()}
        found = list[Answer]()
        for released, charged in zip(self._session.released, entries, strict=True):
            entry = charged.entry
            found += answers_of(
                released, self._terms, event=entry.event, run=entry.run_id,
                budget=budgets[entry.dataset], intervals=self._intervals,
            )  # fmt: skip
        return tuple(found)

    @property
    def totals(self) -> DatasetTotals:
        """What the ledger has of the data: budget, and everything that was charged to it."""
        own = self._session.budget.key
        (totals,) = [each for each in self._session.ledger.totals() if each.budget.key == own]
        return totals

    def report(self, path: str | Path | None = None) -> Path:
        """Writes a page of every answer, with the budget as it went; default in the folder."""
        from parley.analytics.page import write_session_page  # noqa: PLC0415 - start-up: `query --plan` draws no page (altair takes .5 s)

        self._check_open()
        return write_session_page(self, Path(path) if path else self.folder / "report.html")
