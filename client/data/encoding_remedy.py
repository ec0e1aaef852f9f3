"""Find a CSV that is read in another encoding than its own, after an error. Imported only then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parley.client.data.column_names import get_file_format
from parley.client.data.csv_detection import find_encoding_remedy
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import FormattedFile, Source, get_source_name
from parley.client.data.file_format_overrides import apply_format
from parley.client.data.schema import Schema


def add_encoding_remedy(error: DataError, sources: Sequence[Source], schema: Schema) -> None:
    """Add the remedy to the error if its source is a CSV in another encoding."""
    for source in sources:
        if not isinstance(source, str | Path | FormattedFile):
            continue
        if str(get_source_name(source)) == error.path and Path(error.path).is_file():
            own = apply_format(source, schema) if isinstance(source, FormattedFile) else schema
            if get_file_format(error.path, own.file) == "csv":
                error.add_remedy(find_encoding_remedy(error.path, own.file.encoding))
                return
