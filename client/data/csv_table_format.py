"""The CSV format, and the faults of a header or a separator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parley.client.data.csv_detection import check_first_line, find_separator_fault
from parley.client.data.csv_reader import read_csv_names, read_csv_tables
from parley.client.data.data_error import DataError
from parley.client.data.raw_table import RawTable
from parley.client.data.table_formats import ReadRequest, TableFormat


def _read_tables(source: str | Path, request: ReadRequest) -> Iterator[RawTable]:
    """Yield batches of a CSV. A record of another width may be the header's fault."""
    file = request.schema.file
    try:
        yield from read_csv_tables(source, request)
    except DataError as error:
        if error.row and not error.column:
            check_first_line(source, file.encoding, file.separator, header=file.header)
        raise


FORMAT = TableFormat(
    read_names=read_csv_names, read_tables=_read_tables, find_name_fault=find_separator_fault
)
