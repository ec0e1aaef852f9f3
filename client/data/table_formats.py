"""Registry of the formats that a table is read from: one row of text for each.

A process imports only the reader of the format that its data have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parley.client.data.data_error import DataError
from parley.client.data.schema import FileFormat, Schema
from parley.module_loading.plugin_table import PluginTable

if TYPE_CHECKING:
    from parley.client.data.memory_limit import MemoryLimit
    from parley.client.data.raw_table import RawTable


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """What is read of a source.

    Attributes:
        names: Names of all columns.
        wanted: Names of the columns to read.
        on_row_count: Called with the number of rows, if the format states it before they are read.
    """

    schema: Schema
    names: Sequence[str]
    wanted: Sequence[str]
    memory_limit: MemoryLimit
    on_row_count: Callable[[int], None] | None = None


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """How a table of one format is read.

    Attributes:
        read_names: Returns the names of all columns of a source. A name may occur twice.
        read_tables: Yields the wanted columns of a source in batches.
        find_name_fault: Returns the fault that explains a single wide column, if there is one.
    """

    read_names: Callable[[Any, FileFormat], list[str]]
    read_tables: Callable[[Any, ReadRequest], Iterator[RawTable]]
    find_name_fault: Callable[[Any, FileFormat], DataError | None] = lambda source, file: None


FORMATS = PluginTable[TableFormat](
    {
        "csv": "parley.client.data.csv_table_format:FORMAT",
        "parquet": "parley.client.data.parquet_table_format:FORMAT",
        "npz": "parley.client.data.npz_table_format:FORMAT",
        "memory": "parley.client.data.memory_table_format:MEMORY_FORMAT",
        "query": "parley.client.data.sql_source:FORMAT",
    }
)
"""Reader of each format of a file, of columns in memory and of a database query."""
