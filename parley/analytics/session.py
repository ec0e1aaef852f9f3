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
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from parley.analytics.answer import Answer, title
from parley.analytics.answering import answers_of
from parley.analytics.asking import Asking, by_party
from parley.analytics.composed import Composed
from parley.analytics.intervals import Intervals
from parley.analytics.sql import frame_of_answers, parse_sql
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, QueryError
from parley.client.where import Expression
from parley.privacy.accounting.rounding import as_written
from parley.privacy.ledger.budget import DatasetBudget, DatasetTotals
from parley.server.planning.queries import PlannedBatch, Terms, plan_batch

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Session", "plan_text"]


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
            self._session, self._terms, own = open_session(
                self._stack, data, resume=None if resume is None else Path(resume), **settings
            )
        except BaseException:
            self._stack.close()
            raise
        self._law: str = own.law
        self._intervals = Intervals(simultaneous=own.simultaneous, sampling=own.sampling)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session; what it released stays in its folder."""
        self._open = False
        self._stack.close()

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

    def batch(self, epsilon: float, *, law: str | None = None) -> _Batch:
        """Several queries in one sum, for one price."""
        self._check_open()
        return _Batch(self, epsilon=epsilon, law=law)

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
        return _Part(self, where, by)

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
        known = self._session.kept(planned, epsilon=epsilon) or self._session.asked_before(
            planned, epsilon=epsilon
        )
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


class _Part(Asking):
    """Some records of a session or batch, or in groups."""

    def __init__(self, whole: Asking, where: Expression | None, by: tuple[str, ...]) -> None:
        self._whole, self._where, self._by = whole, where, by

    def ask(self, query: Query, **price: Any) -> Any:
        """See `Session.ask`."""
        return self._whole.ask(query, **price)

    def _part(self, where: Expression | None, by: tuple[str, ...]) -> Any:
        return _Part(self._whole, where, by)


@dataclass(kw_only=True)
class _Later:
    """A query of a batch that is still open."""

    query: Query
    share: float
    by_party: bool
    answer: Answer | None = field(default=None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.answer is None:
            if name.startswith("__"):
                raise AttributeError(name)
            raise QueryError(
                f"Expected the batch to be over before {title(self.query)} is answered: its "
                "queries are released together at the end of `with`."
            )
        return getattr(self.answer, name)

    def __str__(self) -> str:
        return f"{title(self.query)}: not asked yet" if self.answer is None else str(self.answer)


class _Batch(Asking):
    """Queries that are released together where `with` ends; nothing if that is by an error."""

    def __init__(self, session: Session, *, epsilon: float, law: str | None) -> None:
        self._session, self._epsilon, self._law = session, epsilon, law
        self._asked: list[_Later] = []
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        if kind is None:
            answers = self._session.release(
                [each.query for each in self._asked],
                epsilon=self._epsilon,
                law=self._law,
                shares=[each.share for each in self._asked] or None,
                by_party=self._by_party,
            )
            for each, answer in zip(self._asked, answers, strict=True):
                each.answer = answer

    @property
    def _by_party(self) -> bool:
        """Whether its answers are each party's own: all of them, or none."""
        told = {each.by_party for each in self._asked}
        if len(told) > 1:
            raise QueryError(
                "Expected all queries of a batch by party, or none, got some: they share a sum."
            )
        return told == {True}

    def ask(self, query: Query, *, share: float = 1.0, by: str | None = None, **price: Any) -> Any:
        """Adds a query; `share` is its part of the budget, beside the others'."""
        if self._over:
            raise QueryError("Expected an open batch, this one is over.")
        if price:
            raise QueryError(
                f"Expected a share with a query of a batch, whose price is the batch's, got "
                f"{', '.join(price)}."
            )
        if isinstance(share, bool) or not isinstance(share, int | float) or not share > 0:
            raise QueryError(f"Expected a share > 0, got {share!r}.")
        later = _Later(query=query, share=float(share), by_party=by_party(by))
        self._asked.append(later)
        return later

    def _part(self, where: Expression | None, by: tuple[str, ...]) -> Any:
        return _Part(self, where, by)

    def planned(self) -> PlannedBatch:
        """What would be released by what was asked so far."""
        return self._session.plan(
            [each.query for each in self._asked],
            epsilon=self._epsilon,
            law=self._law,
            shares=[each.share for each in self._asked] or None,
            by_party=self._by_party,
        )

    def plan(self) -> str:
        """The expected error of each query, before anything is spent."""
        planned = self.planned()
        return plan_text(
            planned,
            [each.query for each in self._asked],
            terms=self._session.terms,
            epsilon=self._epsilon,
        )


def plan_text(
    planned: PlannedBatch, queries: Sequence[Query], *, terms: Terms, epsilon: float
) -> str:
    """A planned release in words."""
    plan, scale = planned.plan, planned.scale()
    errors = planned.errors(terms.facts)
    lines = [
        f"{title(query)}: {query.cells(terms.facts.schema):,} cells, expected error "
        f"{error:.4g}, noise scale {scale / weight:.6g}"
        for query, error, weight in zip(queries, errors, planned.batch.weights, strict=True)
    ]
    if planned.instead is not None and planned.instead.trusted:
        lines.append(f"of a simulation alone: with real parties {planned.instead.refusal}")
    lines.append(
        f"together: one secure sum of {plan.dimension:,} integers in a ring of "
        f"{plan.encoding.ring_bits} bits; {planned.law}; costs ε = {as_written(epsilon)} at δ = "
        f"{as_written(terms.delta)} ({plan.primary.unit}, {plan.primary.neighbouring}); nothing "
        "was charged"
    )
    return "\n".join(lines)
