"""Read `queries.toml`, which contains a session's settings and its queries.

    [session]
    data = "data/party-*.csv"
    schema = "patients.schema.toml"
    epsilon = 1.0

    [[query]]
    query = "count"
    where = "age > 60"
    by = ["ward"]
    epsilon = 0.1

Queries with the same `batch` are released together. The first of them gives the price, and each has
a `share` of it. `query = "table-one"` is such a batch, which builds a study's first table.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from parley.analytics.answer import Answer
from parley.analytics.answer_output import build_file_path
from parley.analytics.query_api import format_plan, is_by_party
from parley.analytics.query_remedies import find_batches_advice
from parley.analytics.session import Session
from parley.analytics.session_settings import Settings, parse_settings
from parley.analytics.sql_queries import parse_sql
from parley.analytics.table_one import KIND, TableOneQuery, format_expected_errors
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass
from parley.client.data.schema import load_schema
from parley.client.queries.base import Query, QueryError
from parley.client.queries.filters.expressions import Expression
from parley.client.queries.filters.parser import parse_where
from parley.client.queries.registry import QUERIES
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.safe_io.attribute_docstrings import describe_fields
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.toml_reading import load_toml
from parley.safe_io.toml_writing import format_toml_value
from parley.server.jobs.external_references import FilePath, locate_value
from parley.server.planning.query_planner import PlannedBatch

_SESSION_FIELDS = Settings.model_fields | {
    name: FieldInfo.from_annotation(FilePath) for name in ("data", "schema")
}
"""Keys of `[session]`, by name with underscores."""

_PRICE = {"name": "", "epsilon": None, "batch": "", "share": 1.0, "law": ""}
"""Keys of every query in addition to `where` and `by`, with their defaults."""
_MAX_NAME_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class QueryEntry:
    """One `[[query]]`.

    Attributes:
        epsilon: Price of the query or of its batch.
        batch: Name of the queries that are released together; empty for a single query.
        law: Noise distribution; empty for the session's.
    """

    name: str
    query: Query
    epsilon: float | None = None
    batch: str = ""
    share: float = 1.0
    law: str = ""
    by_party: bool = False

    def __post_init__(self) -> None:
        if len(self.name) > _MAX_NAME_LENGTH:
            raise QueryError(f"Expected a name of at most {_MAX_NAME_LENGTH} characters, got more.")
        for what, value in (("epsilon", self.epsilon), ("share", self.share)):
            if value is not None and not 0 < value < math.inf:
                raise QueryError(f"{self.name}: Expected {what}, a number > 0, got {value}.")


@dataclass(frozen=True, kw_only=True)
class QueryFile:
    """A query file.

    Attributes:
        session: Keys of `[session]`, including data and schema, with underscores.
        table: Index of the batch that is a table one, or None.

    Raises:
        QueryError: the names or prices are not consistent.
    """

    session: dict[str, Any]
    batches: tuple[tuple[QueryEntry, ...], ...]
    table: int | None = None

    def __post_init__(self) -> None:
        # A query's name is also a file name.
        named = {each.name: build_file_path(each.name) for batch in self.batches for each in batch}
        counted = Counter(build_file_path(each.name) for batch in self.batches for each in batch)
        if twice := [name for name, file in named.items() if counted[file] > 1]:
            raise QueryError(
                "Expected distinct names, by their letters and digits, got "
                f"{' and '.join(twice[:2])}{' twice' * (len(twice) == 1)}."
            )
        for first, *others in self.batches:
            if first.epsilon is None or any(each.epsilon is not None for each in others):
                raise QueryError(
                    f"Expected epsilon only with {first.name!r}, the first query of its batch."
                )
            if any(each.by_party != first.by_party for each in others):
                raise QueryError(
                    f'Expected by = "party" with all queries of {first.name!r}\'s batch, or with '
                    "none, got some."
                )

    def format_plans(self, session: Session) -> Iterator[str]:
        """Yield a refusal if any, the cost of the whole file, and a description of each batch."""
        planned = self.plan_batches(session)
        if refusal := self.find_refusal(session, planned):
            yield f"`parley query` would refuse this file. {refusal}"
        yield format_cost(planned, session.totals.budget)
        for place, (batch, each) in enumerate(zip(self.batches, planned, strict=True)):
            queries, price = _get_release(batch)
            yield format_plan(each, queries, terms=session.terms, epsilon=price["epsilon"])
            if place == self.table:
                yield format_expected_errors(each, session.terms.facts, epsilon=price["epsilon"])

    def plan_batches(
        self, session: Session, prices: Sequence[float] | None = None
    ) -> list[PlannedBatch]:
        """Plan the release of every batch, without asking a party or charging the budget.

        Args:
            prices: An ε for each batch instead of the file's.

        Raises:
            QueryError, SchemaError, CalibrationError: a batch cannot be released.
        """
        releases = [_get_release(batch) for batch in self.batches]
        for (_, how), price in zip(releases, prices or (), strict=False):
            how["epsilon"] = price
        return [session.plan(queries, **how) for queries, how in releases]

    def find_refusal(self, session: Session, planned: Sequence[PlannedBatch]) -> str | None:
        """Return why the budget does not cover all batches, or None."""
        try:
            self._check_budget(session, planned)
        except BudgetExceeded as error:
            return str(error)
        return None

    def _check_budget(self, session: Session, planned: Sequence[PlannedBatch]) -> None:
        """Refuse batches that cost more than is left, with values of ε that fit."""
        try:
            session.check_budget(planned)
        except BudgetExceeded as error:
            if session.answers:  # prices of earlier releases cannot change
                raise
            prices = {first.name: first.epsilon or 0.0 for first, *_ in self.batches}
            plan = partial(self.plan_batches, session)
            if advice := find_batches_advice(plan, session.check_budget, prices):
                error.args = (f"{error} {advice}",)
            raise

    def release_batches(
        self, session: Session, planned: Sequence[PlannedBatch]
    ) -> Iterator[list[tuple[str, Answer]]]:
        """Yield names and answers, batch by batch.

        Before any batch is paid for, this refuses queries that cannot be asked or paid for, and a
        table one that would be mostly noise.
        """
        if (table := self.table) is not None:
            _, price = _get_release(self.batches[table])
            format_expected_errors(planned[table], session.terms.facts, epsilon=price["epsilon"])
        self._check_budget(session, planned)
        for place, batch in enumerate(self.batches):
            queries, price = _get_release(batch)
            answers = session.release(queries, **price)
            if place == self.table:  # it describes these records: intervals only for the noise
                answers = [each.with_intervals() for each in answers]
            yield [(each.name, answer) for each, answer in zip(batch, answers, strict=True)]


def format_cost(planned: Sequence[PlannedBatch], budget: DatasetBudget) -> str:
    """Return what an account without releases charges for the whole, and what it promises."""
    primary = [each.plan.primary for each in planned]
    queries = sum(len(each.batch.queries) for each in planned)
    epsilon = budget.compute_epsilon(Composition.from_events(each.event for each in planned))
    releases = sum(len(each.batch.queries[0].step_shares) or 1 for each in planned)
    several = f"{releases} releases" if releases > 1 else "one release"
    against = " and ".join(dict.fromkeys(each.against.short for each in primary))
    return (
        f"ε = {format_rounded_up(epsilon)} for all of it at δ = {format_exact(budget.delta)} "
        f"({queries} quer{'ies' if queries > 1 else 'y'} in {several}; {primary[0].unit}, "
        f"{primary[0].neighbouring}; against {against}); the budget holds "
        f"{budget.certificate.description}"
    )


def _get_release(batch: Sequence[QueryEntry]) -> tuple[list[Query], dict[str, Any]]:
    """Return a batch's queries, and its price, noise distribution and shares."""
    first = batch[0]
    return [each.query for each in batch], {
        "epsilon": float(first.epsilon or 0.0),
        "law": first.law or None,
        "shares": [each.share for each in batch],
        "by_party": first.by_party,
    }


def load_request(queries: str, epsilon: float | None, session_file: Path) -> QueryFile:
    """Load a query file, or parse a SELECT that costs `epsilon` and uses another file's [session].

    Raises:
        QueryError, WhereError, SchemaError: what was expected and what was found.
    """
    if queries.lstrip()[:6].upper() != "SELECT":
        if epsilon is not None:
            raise QueryError(
                "Expected --epsilon only with a SELECT: a query file has an epsilon per query."
            )
        return load_queries(Path(queries))
    if epsilon is None:
        raise QueryError("Expected --epsilon with a SELECT, which is its price, got none.")
    session = load_session_keys(session_file)
    statement = parse_sql(queries, load_schema(session["schema"]))
    named = zip(statement.names, statement.queries, strict=True)
    first, *others = (QueryEntry(name=name, query=query) for name, query in named)
    batch = (dataclasses.replace(first, epsilon=epsilon), *others)
    return QueryFile(session=session, batches=(batch,))


def build_table_one_file(
    columns: str, *, by: str | None, epsilon: float | None, session_file: Path
) -> QueryFile:
    """Build a query file with one table one, from another file's [session] and comma-separated
    columns.

    Raises:
        QueryError, SchemaError: what was expected and what was found.
    """
    if epsilon is None:
        raise QueryError("Expected --epsilon with --table-one, which is its price, got none.")
    session = load_session_keys(session_file)
    named = [] if columns == "all" else [name.strip() for name in columns.split(",")]
    asked = {"columns": named, "by": [] if by is None else [by], "epsilon": epsilon}
    return QueryFile(session=session, batches=(_build_table_one(asked, session),), table=0)


def load_session_keys(path: Path) -> dict[str, Any]:
    """Load the [session] of a file and check that it names a schema.

    Raises:
        QueryError: what was expected and what was found.
    """
    _, session = _read_file(path)
    if not isinstance(session.get("schema"), str):
        raise QueryError(f"{path}: Expected schema, a file, in [session], got none.")
    return session


def load_queries(path: Path) -> QueryFile:
    """Load a query file. Relative paths in it are relative to the file.

    Raises:
        QueryError, WhereError: what was expected and what was found.
    """
    given, session = _read_file(path)
    tables = given.get("query", [])
    if not isinstance(tables, list) or not tables:
        raise QueryError(f"{path}: Expected at least one [[query]], got none.")
    batches: dict[str, list[QueryEntry]] = {}
    of_table: list[int] = []
    try:
        for number, table in enumerate(tables, start=1):
            kind = table.get("query") if isinstance(table, Mapping) else None
            if kind == KIND:
                of_table.append(len(batches))
                batches[f"\0{number}"] = list(_build_table_one(table, session, f"query {number}"))
                continue
            each = _parse_query(table, number)
            batches.setdefault(each.batch or f"\0{number}", []).append(each)
        if len(of_table) > 1:
            raise QueryError(f"Expected one table-one in a file, got {len(of_table)}.")
        own, place = tuple(map(tuple, batches.values())), next(iter(of_table), None)
        return QueryFile(session=session, batches=own, table=place)
    except QueryError as error:
        raise QueryError(f"{path}: {error}") from None


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file, and return its content and its [session] with resolved paths."""
    try:
        given = load_toml(path)
    except (OSError, tomllib.TOMLDecodeError) as error:
        got = describe_cause(error)
        raise QueryError(f"{path}: Expected a query file (TOML), got: {got}.") from error
    unknown = sorted(set(given) - {"session", "query"})
    if unknown or not isinstance(given.get("session"), dict):
        raise QueryError(f"{path}: Expected [session] and [[query]], got {unknown or 'neither'}.")
    session = {key.replace("-", "_"): value for key, value in given["session"].items()}
    if {"resume", "out"} & session.keys():
        raise QueryError(
            f"{path}: Expected out and resume on the command line, got them in the file."
        )
    for key, info in _SESSION_FIELDS.items():
        if key in session:
            session[key] = locate_value(session[key], info, path.parent)
    return given, session


def _list_keys(kind: type[Query]) -> dict[str, Any]:
    """Return a query kind's own keys in a file, except `where`, with their defaults."""
    left_out = {"where", *kind.derived_fields}
    own = dataclasses.fields(kind)
    return {each.name: each.default for each in own if each.name not in left_out}


def _parse_query(table: Any, number: int) -> QueryEntry:
    where = f"query {number}"
    expected = f"{where}: Expected query, one of {', '.join(QUERIES)}"
    if not isinstance(table, Mapping) or not isinstance(table.get("query"), str):
        raise QueryError(f"{expected}, got none.")
    kind = QUERIES.get(table["query"])
    if kind is None:
        raise QueryError(f"{expected}, got {table['query']!r:.80}.")
    given = {key.replace("-", "_"): value for key, value in table.items()}
    del given["query"]
    price = {key: given.pop(key, default) for key, default in _PRICE.items()}
    price["name"] = price["name"] or f"{kind.kind} {number}"
    if each_party := isinstance(given.get("by"), str):
        is_by_party(given.pop("by"))
    condition = _parse_condition(given.pop("where", None), where)
    known = _list_keys(kind)
    if unknown := sorted(set(given) - set(known)):
        keys = ", ".join([*known, "where", *_PRICE])
        raise QueryError(f"{where}: Expected the keys {keys}, got {unknown[0]!r}.")
    own = {each.name: each.default for each in dataclasses.fields(kind) if each.name != "where"}
    defaults = {key: value for key, value in own.items() if value is not dataclasses.MISSING}
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in (defaults | given).items()}
    try:
        query = decode_dataclass(kind, values, where=condition)
        return decode_dataclass(QueryEntry, price, query=query, by_party=each_party)
    except DecodingError as error:
        raise QueryError(f"{where}: {error}") from error


def _parse_condition(text: Any, where: str) -> Expression | None:
    if text is not None and not isinstance(text, str):
        raise QueryError(f"{where}: Expected where as text, got {type(text).__name__}.")
    return None if text is None else parse_where(text)


def _build_table_one(
    entry: Mapping[str, Any], session: Mapping[str, Any], where: str = "table one"
) -> tuple[QueryEntry, ...]:
    """Return the batch of a table one."""
    keys = {**entry}
    keys.pop("query", None)
    condition = _parse_condition(keys.pop("where", None), where)
    try:
        asked = TableOneQuery.from_keys(keys, condition)
    except DecodingError as error:
        raise QueryError(f"{where}: {error}") from error
    settings = parse_settings({k: v for k, v in session.items() if k not in ("data", "schema")})
    law, queries = asked.build_batch(load_schema(str(session.get("schema"))), settings)
    return tuple(
        QueryEntry(
            name=f"{asked.name}: {query.kind} {getattr(query, 'column', '')}".rstrip(),
            query=query,
            epsilon=None if place else asked.epsilon,
            share=share,
            law="" if place else law,
        )
        for place, (query, share) in enumerate(queries)
    )


def build_example_file() -> str:
    """Return an example file with every setting and every query, and comments."""
    lines = ["[session]", 'data = "party-*.csv"  # one file per party', 'schema = "schema.toml"']
    lines += ["epsilon = 1.0  # total budget of these data in this ledger, over all sessions"]
    descriptions = describe_fields(Settings)
    for name, info in Settings.model_fields.items():
        if name == "epsilon":
            continue
        value = "" if info.default is None else format_toml_value(info.default)
        lines.append(f"# {info.alias or name} = {value}  # {descriptions[name]}")
    for kind in QUERIES.values():
        lines += ["", "# [[query]]", f'# query = "{kind.kind}"']
        for name, default in _list_keys(kind).items():
            value = '"…"' if default is dataclasses.MISSING else format_toml_value(default)
            lines.append(f"# {name.replace('_', '-')} = {value}")
        lines += ["# where = \"age > 60 and sex == 'Female'\"", "# epsilon = 0.1"]
    lines += [
        "",
        "# [[query]]",
        f'# query = "{KIND}"  # a study\'s first table; at most one per file',
        "# columns = []  # empty: all columns of the schema",
        "# by = []  # column of its groups: one, or none",
        '# where = "…"',
        "# epsilon = 0.5  # the whole table",
        '# name = "…", batch = "…", share = 1.0, law = "auto"  # for every query',
        '# by = "party"  # for every query, instead of groups: an answer per party',
    ]
    return "\n".join(lines) + "\n"
