"""Statements that every step of a ledger makes, compiled once and handed to the driver as they are.

SQLAlchemy writes them, each for its database. What it does at every execution (keys of its cache,
parameters, results) takes several times as long as SQLite does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

__all__ = ["Prepared"]


class Prepared:
    """A statement.

    Args:
        statement: for any database.
        columns: of an INSERT or UPDATE, those that are given.
    """

    def __init__(self, statement: sa.ClauseElement, columns: Sequence[str] | None = None) -> None:
        self._statement, self._columns = statement, columns
        self._compiled: dict[str, tuple[str, Mapping[str, Any], Sequence[str] | None]] = {}

    def run(self, connection: sa.Connection, *given: Mapping[str, Any]) -> Any:
        """The driver's cursor behind the statement, executed once for each of `given`.

        Raises:
            The driver's own errors.
        """
        text, known, places = self._for(connection.dialect)
        values: list[Any] = [{**known, **each} for each in given]
        if places is not None:
            values = [[each[name] for name in places] for each in values]
        cursor = connection.connection.cursor()
        if len(values) == 1:
            cursor.execute(text, values[0])
        else:
            cursor.executemany(text, values)
        return cursor

    def _for(self, dialect: sa.Dialect) -> tuple[str, Mapping[str, Any], Sequence[str] | None]:
        found = self._compiled.get(dialect.name)
        if found is None:
            made = self._statement.compile(dialect=dialect, column_keys=self._columns)
            places = getattr(made, "positiontup", None)
            found = self._compiled[dialect.name] = (str(made), dict(made.params), places)
        return found
