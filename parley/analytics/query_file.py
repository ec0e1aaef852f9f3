"""`queries.toml`: a session's settings, and what it asks.

    [session]
    data = "data/party-*.csv"
    schema = "patients.schema.toml"
    epsilon = 1.0

    [[query]]
    query = "count"
    where = "age > 60"
    by = ["ward"]
    epsilon = 0.1

Queries that name the same `batch` are released together, for the price that the first of them
gives, each with its `share` of it.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley.analytics.asking import by_party
from parley.analytics.settings import Settings
from parley.client.contract import toml_text
from parley.client.contract.decoding import DecodingError, facts_from
from parley.client.contract.toml_reading import load_toml
from parley.client.queries import QUERIES
from parley.client.queries.base import Query, QueryError
from parley.client.where import parse_where

_PRICE = {"name": str, "epsilon": float, "batch": str, "share": float, "law": str}
_DERIVED = {"balance", "counted", "local"}
"""Fields that a law decides."""


@dataclass(frozen=True, kw_only=True)
class AskedQuery:
    """One `[[query]]`.

    Attributes:
        name: that its answer is known by.
        query: what.
        epsilon: what it costs, or its batch does.
        batch: which queries are released together; empty: it is alone.
        share: of its batch's budget.
        law: of the noise; empty: the session's.
        by_party: each party's own answer.
    """

    name: str
    query: Query
    epsilon: float | None = None
    batch: str = ""
    share: float = 1.0
    law: str = ""
    by_party: bool = False

    def price(self, batch: Sequence[AskedQuery]) -> dict[str, Any]:
        """What its batch costs, and how the noise is drawn and shared out: for `Session.plan`."""
        return {
            "epsilon": float(self.epsilon or 0.0),
            "law": self.law or None,
            "shares": [each.share for each in batch],
            "by_party": self.by_party,
        }


@dataclass(frozen=True, kw_only=True)
class QueryFile:
    """A whole file.

    Attributes:
        session: the keys of `[session]`, data and schema among them.
        batches: queries that are released together, in order.
    """

    session: dict[str, Any]
    batches: tuple[tuple[AskedQuery, ...], ...] = field(default=())


def load_queries(path: Path) -> QueryFile:
    """The queries of a file; relative paths in it are relative to the file.

    Raises:
        QueryError, WhereError: what was expected, what came.
    """
    given, session = _read(path)
    tables = given.get("query", [])
    if not isinstance(tables, list) or not tables:
        raise QueryError(f"{path}: Expected at least one [[query]], got none.")
    asked = [_asked(table, number) for number, table in enumerate(tables, start=1)]
    names = [each.name for each in asked]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise QueryError(f"{path}: Expected every name once, got {', '.join(twice)} twice.")
    batches: dict[str, list[AskedQuery]] = {}
    for number, each in enumerate(asked):
        batches.setdefault(each.batch or f"\0{number}", []).append(each)
    for own in batches.values():
        if own[0].epsilon is None or any(each.epsilon is not None for each in own[1:]):
            raise QueryError(
                f"{path}: Expected epsilon with {own[0].name!r}"
                f"{', the first of its batch, and with none after it' if own[0].batch else ''}."
            )
        if len({each.by_party for each in own}) > 1:
            raise QueryError(
                f'{path}: Expected by = "party" with all queries of batch {own[0].batch!r}, or '
                "with none, got some."
            )
    return QueryFile(session=session, batches=tuple(tuple(own) for own in batches.values()))


def load_session(path: Path) -> dict[str, Any]:
    """The settings of a file's [session], whatever it asks.

    Raises:
        QueryError: what was expected, what came.
    """
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """All of a file, and its [session] with paths relative to the file."""
    try:
        given = load_toml(path)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise QueryError(f"{path}: Expected a file of queries (TOML), got: {error}.") from error
    unknown = sorted(set(given) - {"session", "query"})
    if unknown or not isinstance(given.get("session"), dict):
        raise QueryError(f"{path}: Expected [session] and [[query]], got {unknown or 'neither'}.")
    session = dict(given["session"])
    if "resume" in session or "out" in session:
        raise QueryError(f"{path}: Expected out and resume on the command line, not in a file.")
    for key in ("data", "schema", "deployment"):
        if isinstance(session.get(key), str):
            session[key] = str(path.parent / session[key])
    return given, session


def _asked(table: Any, number: int) -> AskedQuery:
    where = f"query {number}"
    if not isinstance(table, Mapping) or not isinstance(table.get("query"), str):
        raise QueryError(f"{where}: Expected query, of {', '.join(QUERIES)}, got none.")
    kind = QUERIES.get(table["query"])
    if kind is None:
        raise QueryError(
            f"{where}: Expected a query of {', '.join(QUERIES)}, got {table['query']!r:.80}."
        )
    given = {key.replace("-", "_"): value for key, value in table.items()}
    del given["query"]
    price = {key: given.pop(key) for key in list(given) if key in _PRICE}
    for key, value in price.items():
        wanted = (int, float) if _PRICE[key] is float else str
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise QueryError(f"{where}: Expected {key} as a {_PRICE[key].__name__}, got {value!r}.")
    if each_party := isinstance(given.get("by"), str):
        by_party(given.pop("by"))
    condition = given.pop("where", None)
    if condition is not None and not isinstance(condition, str):
        raise QueryError(f"{where}: Expected where as a text, got {type(condition).__name__}.")
    own = [each for each in dataclasses.fields(kind) if each.name not in _DERIVED]
    known = [each.name for each in own if each.name != "where"]
    if unknown := sorted(set(given) - set(known)):
        raise QueryError(
            f"{where}: Expected the keys {', '.join([*known, 'where', *_PRICE])}, got "
            f"{unknown[0]!r}."
        )
    defaults = {
        each.name: each.default
        for each in dataclasses.fields(kind)
        if each.default is not dataclasses.MISSING and each.name != "where"
    }
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in (defaults | given).items()}
    try:
        query = facts_from(
            kind, values, where=None if condition is None else parse_where(condition)
        )
    except DecodingError as error:
        raise QueryError(f"{where}: {error}") from error
    return AskedQuery(
        query=query, by_party=each_party, **{"name": f"{kind.kind} {number}", **price}
    )


def example_file() -> str:
    """A file with every setting and every query, each with a comment."""
    lines = ["[session]", 'data = "party-*.csv"  # one file a party', 'schema = "schema.toml"']
    lines += ["epsilon = 1.0  # budget of all that is ever asked of these data in this ledger"]
    for name, info in Settings.model_fields.items():
        if name == "epsilon":
            continue
        value = "" if info.default is None else toml_text.literal(info.default)
        lines.append(f"# {info.alias or name} = {value}  # {info.description}")
    for kind in QUERIES.values():
        lines += ["", "# [[query]]", f'# query = "{kind.kind}"']
        for each in dataclasses.fields(kind):
            if each.name in _DERIVED | {"where"}:
                continue
            default = each.default
            value = '"…"' if default is dataclasses.MISSING else toml_text.literal(default)
            lines.append(f"# {each.name.replace('_', '-')} = {value}")
        lines += ["# where = \"age > 60 and sex == 'Female'\"", "# epsilon = 0.1"]
    lines += ['# name = "…", batch = "…", share = 1.0, law = "auto"  # of any query']
    lines += ['# by = "party"  # of any query: each party\'s own answer, in the place of groups']
    return "\n".join(lines) + "\n"
