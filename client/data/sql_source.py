"""The rows of a database query, in batches, from one read-only snapshot.

PostgreSQL reads in a transaction that is REPEATABLE READ and READ ONLY, through a server cursor, so
that only one batch is held here. SQLite opens its file read-only, in one transaction, and an
authoriser permits only SELECT. Both take one statement. Cells are read as a CSV's would be, so that
a ledger recognises the same rows. docs/deployment-services.md (*Records in a database*) lists how
each type is read or refused.

The order in which a database sends rows is no property of the records. Callers sort them by their
contents (`parley.client.data.table_digest.compute_row_order`).
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from operator import add
from time import monotonic
from typing import Any
from urllib.parse import quote
from uuid import UUID

import polars as pl

from parley.client.data.column_types import LONGEST_NUMBER
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import SqlQuery
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FileFormat
from parley.client.data.table_formats import ReadRequest, TableFormat
from parley.privacy.ledger.database_url import WHERE_SECRETS_GO, parse_sqlite_path
from parley.privacy.ledger.postgresql_url import parse_postgresql_url

_BATCH_ROWS = 16384
"""Rows per batch: a few MiB as Python objects, before they become columns."""

_BATCH_BYTES = 2**26
_FETCHED_ROWS = 512
"""Rows that PostgreSQL sends at a time."""
_LONGEST_ROW = 2**26
"""Maximum bytes of the texts of one row."""
_MAX_CELL_BYTES = 2**19
"""Maximum bytes of a cell of SQLite, and of a row within it: the most that 131,072 characters of a
CSV can take.
"""
_SHORTEST_LIMIT = 2**16
"""Minimum limit of a cell of SQLite, for any number of columns."""
_RESULT_ROW, _COLUMNS_OF = "ResultRow", 3
"""An instruction of SQLite's program, and the position of its number of columns."""
_CLOCK_STEPS = 10_000
"""SQLite instructions between two checks of the clock, some 100 microseconds."""

_WAIT_S = 10
"""Timeout for a server's response, or for a SQLite file to be free."""

_NUMBERS = frozenset({int, float, Decimal})
_KNOWN_TYPES = _NUMBERS | {bool, str, UUID, date, datetime, time}
_TYPE_NAMES = {
    bytes: "bytes (bytea, BLOB)",
    list: "an array, or JSON",
    dict: "JSON",
    timedelta: "an interval",
}

_SQLITE_ALLOWED = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_TRANSACTION,
)

_READS = "a query that reads: one SELECT, which changes nothing"

_CONNECTION_FAULTS = {
    "password authentication failed": (f"a password that the server accepts ({WHERE_SECRETS_GO})",
                                       "one that it refuses"),
    "no password supplied": (f"a password: {WHERE_SECRETS_GO}", "none that libpq finds"),
    "resolve": ("a server name that resolves to an address", "no address"),
    "refused": ("a server that listens there", "a refused connection"),
    "timeout": (f"a server that answers within {_WAIT_S} s", "no answer"),
    "does not exist": ("an existing user and database", "an unknown one"),
    "pg_hba.conf": ("a server that admits this user from here (pg_hba.conf)", "a refusal"),
    "SSL": ("TLS as sslmode requires", "a server with other TLS settings"),
    "certificate": ("a certificate as sslmode requires", "another"),
}  # fmt: skip
"""Part of libpq's message on a failed connection → what was expected, and what came.

The message itself is not shown, because it repeats parts of the URL.
"""


class DatabaseError(DataError):
    """Error of a database that returns no rows. Its message never contains a cell."""

    def __init__(self, expected: str, got: str | None, *, path: str) -> None:
        super().__init__(expected, got, path=path)
        self.log_message = str(self)


def _read_names(source: SqlQuery, _: FileFormat) -> list[str]:
    """Return the names of the query's columns. A name may occur twice."""
    with _open_cursor(source) as cursor:
        return _list_names(cursor)


def read_sql_tables(source: SqlQuery, request: ReadRequest) -> Iterator[RawTable]:
    """Yield the rows in batches, with the wanted ones of the columns `names`.

    Raises:
        DatabaseError: the query returns no rows. It names what was expected, and the database's
            answer.
        DataError: values that no column of a table can have.
    """
    names = list(request.names)
    with _open_cursor(source) as cursor:
        if _list_names(cursor) != names:
            raise DatabaseError("the same columns as before", "others", path=source.name)
        if not isinstance(cursor, sqlite3.Cursor):
            cursor.itersize = _rows_to_fetch(cursor.connection, source)
        begin = 0
        for rows in _read_batches(cursor, source):
            cells = list(zip(*rows, strict=True))
            columns = [_build_series(n, cells[names.index(n)], source.name) for n in request.wanted]
            yield RawTable(
                path=source.name,
                frame=pl.DataFrame(columns),
                typed=False,  # a text may contain a number, as in a CSV
                null_values=request.schema.file.null_values,
                row_number=partial(add, begin + 1),
            )
            begin += len(rows)


def _read_batches(cursor: Any, source: SqlQuery) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows in batches that end at `_BATCH_BYTES` of text, or sooner.

    Rows come one by one (SQLite) or `_FETCHED_ROWS` at a time (PostgreSQL), so that a batch does
    not grow with rows that are suddenly large.
    """
    deadline = monotonic() + source.timeout_s
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        if monotonic() > deadline:
            raise _build_timeout_error(source)
        rows.append(row)
        size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if len(rows) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _list_names(cursor: Any) -> list[str]:
    return [str(column[0]) for column in cursor.description]


@contextmanager
def _open_cursor(source: SqlQuery) -> Iterator[Any]:
    """Yield the driver's cursor of the query's rows, within its snapshot."""
    text = source.database
    if text.startswith("env:"):
        text = os.environ.get(text.removeprefix("env:"), "")
        if not text:
            expected = "an environment variable that contains a URL"
            raise DatabaseError(expected, "none", path=source.name)
    sqlite = text.startswith("sqlite://")
    driver, connect = (_prepare_sqlite if sqlite else _prepare_postgresql)(source, text)
    planned = False
    try:
        # A named cursor of psycopg is a server cursor: the server keeps the rows.
        cursor_name = () if sqlite else ("rows",)
        with closing(connect()) as connection, closing(connection.cursor(*cursor_name)) as cursor:
            if sqlite:
                # Prepare the query first without running it. An error of that step cannot contain a
                # cell.
                _limit_cells(connection, source.query)
                planned = True
            cursor.execute(source.query)  # PostgreSQL plans it here but reads no row yet
            planned = True
            if cursor.description is None:
                raise DatabaseError(_READS, "one that gives no rows", path=source.name)
            yield cursor
    except (driver.Error, driver.Warning) as error:
        # Omit the cause: drivers put connection settings into it.
        convert_error = _convert_sqlite_error if sqlite else _convert_postgresql_error
        raise convert_error(error, source, planned=planned) from None


def _rows_to_fetch(connection: Any, source: SqlQuery) -> int:
    """Return how many rows PostgreSQL may send at a time, from the longest row as it measures it.

    Raises:
        DatabaseError: one row is longer than may be held here.
    """
    query = source.query.rstrip().rstrip(";")
    # The bracket is on a separate line, because the query may end with a comment.
    measure = f"SELECT max(octet_length(q::text)) FROM (\n{query}\n) AS q"  # noqa: S608 - it is the query
    ((longest,),) = connection.execute(measure).fetchall()
    if (longest or 0) > _LONGEST_ROW:
        expected = f"rows of at most {_LONGEST_ROW:,} bytes of text"
        raise DatabaseError(expected, "a longer one", path=source.name)
    return max(1, min(_FETCHED_ROWS, _BATCH_BYTES // max(longest or 0, 1)))


def _limit_cells(connection: Any, query: str) -> None:
    """Limit the cells of SQLite, so that a row of all columns has at most `_LONGEST_ROW` bytes."""
    with closing(connection.execute(f"EXPLAIN {query}")) as program:
        columns = [step[_COLUMNS_OF] for step in program if step[1] == _RESULT_ROW]
    longest = _LONGEST_ROW // max([1, *columns])
    limit = min(_MAX_CELL_BYTES, max(_SHORTEST_LIMIT, longest))
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)


def _build_timeout_error(source: SqlQuery) -> DatabaseError:
    expected = f"a query that ends within {source.timeout_s:g} s (query-timeout)"
    return DatabaseError(expected, "one that takes longer", path=source.name)


def _prepare_postgresql(source: SqlQuery, text: str) -> tuple[Any, Callable[[], Any]]:
    """Return the driver, and a function that begins a snapshot."""
    try:
        import psycopg  # noqa: PLC0415 - an extra

        url = parse_postgresql_url(text)
        psycopg.conninfo.conninfo_to_dict(url)
    except ModuleNotFoundError:
        expected = "psycopg, for PostgreSQL (pip install 'parley[postgres]')"
        raise DatabaseError(expected, "none that is installed", path=source.name) from None
    except (ValueError, psycopg.ProgrammingError):
        expected = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        raise DatabaseError(expected, "another text", path=source.name) from None

    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(url, connect_timeout=_WAIT_S)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute("SET LOCAL TIME ZONE 'UTC'")
        limit_ms = max(1, int(1000 * source.timeout_s))
        connection.execute(f"SET LOCAL statement_timeout = {limit_ms}")
        return connection

    return psycopg, connect


def _prepare_sqlite(source: SqlQuery, text: str) -> tuple[Any, Callable[[], Any]]:
    """Return the driver, and a function that begins a snapshot."""
    path = source.folder / parse_sqlite_path(text)
    if not path.is_file():
        raise DatabaseError(f"a SQLite file at {path}", "none", path=source.name)

    def allowed(action: int, *_: object) -> int:
        return sqlite3.SQLITE_OK if action in _SQLITE_ALLOWED else sqlite3.SQLITE_DENY

    def connect() -> sqlite3.Connection:
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_WAIT_S)
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("BEGIN")
        connection.set_authorizer(allowed)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)
        deadline = monotonic() + source.timeout_s
        connection.set_progress_handler(lambda: monotonic() > deadline, _CLOCK_STEPS)
        return connection

    return sqlite3, connect


def _build_series(name: str, cells: Sequence[Any], where: str) -> pl.Series:
    """Return `[n]` cells as a column of one type. Without values its type is open."""
    kinds = set(map(type, cells)) - {type(None)}
    if odd := kinds - _KNOWN_TYPES:
        called = sorted(_TYPE_NAMES.get(kind, f"type {kind.__name__}") for kind in odd)
        remedy = "leave it out of the query, or cast it there"
        expected = f"numbers, text, truth values or dates in column {name!r} ({remedy})"
        raise DatabaseError(expected, " and ".join(called), path=where)
    if not kinds:
        return pl.Series(name, cells, dtype=pl.Null)
    if kinds == {bool}:
        return pl.Series(name, cells, dtype=pl.Boolean)
    if kinds in ({int}, {str}):
        return pl.Series(name, cells, dtype=pl.Int64 if kinds == {int} else pl.String)
    doubles = [float(c) if type(c) in _NUMBERS else None for c in cells]
    numbers = pl.Series(name, doubles, dtype=pl.Float64)
    cell_texts = [_format_cell(c) for c in cells]
    if kinds <= _NUMBERS and not any(cell_texts):
        return numbers
    texts = (numbers.fill_nan(None) + 0.0).cast(pl.String).to_list()
    joined = [cell_text or text for cell_text, text in zip(cell_texts, texts, strict=True)]
    return pl.Series(name, joined, dtype=pl.String)


def _format_cell(cell: Any) -> str | None:
    """Return a cell's text if it differs from its double's. It does not depend on other cells."""
    if type(cell) not in _NUMBERS:
        return None if cell is None else str(cell)
    if type(cell) is float or not math.isfinite(cell) or abs(cell) <= LONGEST_NUMBER:
        return None
    return str(cell) if type(cell) is int else f"{cell:f}"


def _convert_postgresql_error(cause: Exception, source: SqlQuery, *, planned: bool) -> DataError:
    """Return the error of a query that gave no rows.

    Once rows are read, the server's text can contain a cell, in any class of error. Then only the
    condition's name is used. Before that the text can contain words of the query, which are never
    logged.
    """
    # https://www.postgresql.org/docs/current/errcodes-appendix.html
    where, state, message = source.name, getattr(cause, "sqlstate", None), str(cause)
    if state == "57014":
        return _build_timeout_error(source)
    if state is None and type(cause).__name__ == "OperationalError":
        matches = (what for part, what in _CONNECTION_FAULTS.items() if part in message)
        expected, got = next(matches, ("a lasting connection", "none"))
        return DatabaseError(expected, got, path=where)
    expected = "a query that the database can run"
    if state is None or state[:2] == "22":
        expected = "values that the query can compute with and that Python has"
    elif state in ("0A000", "25006", "42601") and not planned:
        expected = _READS
    elif state == "42501":
        expected = "a query that this user may run (GRANT SELECT)"
    return _build_refusal(cause, expected, _get_condition_name(state), where, planned=planned)


def _get_condition_name(state: str | None) -> str:
    """Return the name of one of PostgreSQL's own conditions. A function can raise any other."""
    import psycopg  # noqa: PLC0415 - an extra

    try:
        name = psycopg.errors.lookup(state or "").__name__
    except KeyError:
        return "an error that is not one of PostgreSQL's conditions"
    return f"{state} ({name})"


def _build_refusal(
    cause: Exception, expected: str, condition: str, where: str, *, planned: bool
) -> DataError:
    got = condition
    if not planned and not isinstance(cause, UnicodeError):
        primary = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
        got = f"{condition}: {primary.splitlines()[0] if primary else ''}"
    error = DatabaseError(expected, got, path=where)
    error.log_message = str(DatabaseError(expected, condition, path=where))
    return error


def _convert_sqlite_error(cause: Exception, source: SqlQuery, *, planned: bool) -> DataError:
    """Return the error of a query that gave no rows; see `_convert_postgresql_error`."""
    # The low byte of an extended result code is its class: https://sqlite.org/rescode.html
    where, code, message = source.name, getattr(cause, "sqlite_errorcode", None), str(cause)
    name = getattr(cause, "sqlite_errorname", None) or "an error"
    if code == sqlite3.SQLITE_INTERRUPT:
        return _build_timeout_error(source)
    expected = "a query that SQLite can run"
    if code is None and "Could not decode" in message:  # this message quotes the cell
        return _build_refusal(cause, "text in UTF-8", "another encoding", where, planned=True)
    is_known = True
    if code == sqlite3.SQLITE_TOOBIG:
        expected = f"cells of at most {_MAX_CELL_BYTES:,} bytes, rows of at most {_LONGEST_ROW:,}"
    elif code is None or message == "not authorized" or code & 0xFF == sqlite3.SQLITE_READONLY:
        expected = _READS
    elif code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN):
        expected = "a SQLite database that can be read"
    elif code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        expected = f"a file that is free within {_WAIT_S} s"
    else:
        is_known = False
    return _build_refusal(cause, expected, name, where, planned=planned or is_known)


FORMAT = TableFormat(read_names=_read_names, read_tables=read_sql_tables)
