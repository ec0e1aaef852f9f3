"""A connection to a ledger's database: the standard library's sqlite3, or psycopg.

Both use the same statements: `?` marks a value (psycopg uses %s), and a row is a dictionary.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


class DatabaseConnection:
    """One connection. Exceptions of the driver pass through unchanged.

    Attributes:
        postgresql: whether it is PostgreSQL, not SQLite.
    """

    def __init__(self, driver: sqlite3.Connection | psycopg.Connection[Any]) -> None:
        self._driver: Any = driver
        self.postgresql = not isinstance(driver, sqlite3.Connection)

    def _execute(self, statement: str, values: Sequence[object]) -> Any:
        if self.postgresql:
            return self._driver.execute(statement.replace("?", "%s"), values or None)
        return self._driver.execute(statement, values)

    def fetch_rows(self, statement: str, *values: object) -> Iterator[dict[str, Any]]:
        """Yield the rows that a statement selects."""
        with closing(self._execute(statement, values)) as cursor:
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    def execute(self, statement: str, *values: object) -> int:
        """Execute a statement; return how many rows it changed."""
        with closing(self._execute(statement, values)) as cursor:
            return int(cursor.rowcount)

    def insert(self, table: str, row: Mapping[str, object]) -> None:
        """Add a row."""
        marks = ", ".join("?" * len(row))
        self.execute(f"INSERT INTO {table} ({quote_names(row)}) VALUES ({marks})", *row.values())  # noqa: S608 - names of ours

    def update(self, table: str, changed: Mapping[str, object], where: Mapping[str, object]) -> int:
        """Change the rows with these values; return how many there were."""
        new, known = (_format_assignments(names) for names in (changed, where))
        statement = f"UPDATE {table} SET {', '.join(new)} WHERE {' AND '.join(known)}"  # noqa: S608 - names of ours
        return self.execute(statement, *changed.values(), *where.values())

    def commit(self) -> None:
        """End the transaction; its changes are then durable."""
        self._driver.commit()

    def rollback(self) -> None:
        """End the transaction, if there is one, without changes."""
        self._driver.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._driver.close()


def quote_names(names: Iterable[str]) -> str:
    """Return the names of columns for a statement, quoted: `index` is a word of SQL.

    >>> quote_names(["run_id", "index"])
    '"run_id", "index"'
    """
    return ", ".join(f'"{name}"' for name in names)


def _format_assignments(names: Mapping[str, object]) -> list[str]:
    return [f'"{name}" = ?' for name in names]
