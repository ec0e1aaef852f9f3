"""The sources of a table: a file, a database query, or data in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from parley.client.data.data_error import LABELS, DataError
from parley.privacy.ledger.database_url import check_source

IN_MEMORY = "in memory"


Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryTable:
    """Columns in memory, `[N]` or `[N, …]`. A missing value is NaN, or "" among texts.

    Attributes:
        columns: arrays by name. Whole numbers of 16 digits and more may be Python objects, with
            None for a missing one (`to_series` reads them).
        label: name of the label's column, if the data name it: y of (X, y).
        label_faults: why a column cannot be the label, by its name (`label_value_types`).
    """

    columns: Mapping[str, Array]
    name: str = IN_MEMORY
    label: str = ""
    label_faults: Mapping[str, str] = field(default_factory=dict)

    def check_label(self, name: str) -> None:
        """Raise DataError if a column has values of types that are no labels."""
        if fault := self.label_faults.get(name):
            raise DataError(LABELS, fault, path=self.name, column=name)


@dataclass(frozen=True, kw_only=True)
class SqlQuery:
    """The rows of a database query (`parley.client.data.sql_source` reads them).

    Attributes:
        database: its URL, without a password; or `env:NAME`, a variable that contains one.
        folder: folder of a relative SQLite file.
        timeout_s: seconds that the query may take in total.

    Raises:
        ValueError: the URL is not one of a known database or has a password, or there is no query.
    """

    database: str
    query: str
    folder: Path = Path()
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        check_source(self.database, self.query)
        if not self.query:
            raise ValueError("Expected a database's URL, got another text.")

    @property
    def name(self) -> str:
        """The name in errors: the URL without its options."""
        return self.database.partition("?")[0]


@dataclass(frozen=True, kw_only=True)
class FormattedFile:
    """A file that is written differently than its schema says.

    The module `file_format_overrides` checks and applies its keys.

    Attributes:
        name: its path.
        keys: keys of a schema's `[file]` section in which it differs.
    """

    name: str
    keys: Mapping[str, Any]


TableSource = str | Path | MemoryTable | SqlQuery
"""A file, columns in memory, or a query."""

Source = TableSource | FormattedFile
"""The same, or a file that is written differently than its schema says."""


def get_source_name(source: Source) -> str | Path:
    """Return the source's name in errors."""
    return source if isinstance(source, str | Path) else source.name
