"""How a file of new rows is written: as the model's schema says, as the caller says, or guessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parley.client.data.column_names import get_file_format
from parley.client.data.csv_detection import guess_encoding, guess_separator
from parley.client.data.data_error import DataError
from parley.client.data.schema import FileFormat, Schema
from parley.client.data.schema_inference.column_profile import find_decimal_mark
from parley.client.data.schema_inference.format_detection import build_file_schema
from parley.client.data.table_reading import read_tables

FORMAT_KEYS = ("separator", "decimal", "encoding")


def adapt_format(schema: Schema, source: Path, names: Sequence[str], **given: str | None) -> Schema:
    """Return the schema with the format of `source`.

    A CSV whose columns are not found by the schema's format is guessed as `parley schema infer`
    does.

    Args:
        given: separator, decimal and encoding; None for those that the caller does not know.

    Raises:
        DataError: a format that no CSV has.
    """
    known = {key: value for key, value in given.items() if value is not None}
    _build_format({"separator": ";", **known})  # refused before the file is read by it
    if get_file_format(source, schema.file) != "csv":
        return schema
    if not known and _has_columns(schema, source, names):
        return schema
    encoding = known.get("encoding") or guess_encoding(source)
    separator = known.get("separator") or guess_separator(source, encoding)
    entry = {**schema.file.model_dump(by_alias=True), "encoding": encoding, "separator": separator}
    entry["decimal"] = known.get("decimal", "." if separator == "," else schema.file.decimal)
    written = schema.model_copy(update={"file": _build_format(entry)})
    if "decimal" in known or separator == "," or not _has_columns(written, source, names):
        return written
    table = next(read_tables(source, written, only=names))
    texts = [table.get_column(name) for name in names if name in table.frame.columns]
    entry["decimal"] = find_decimal_mark(texts)
    return schema.model_copy(update={"file": _build_format(entry)})


def _build_format(entry: dict[str, object]) -> FileFormat:
    return build_file_schema({key: value for key, value in entry.items() if value is not None}).file


def _has_columns(schema: Schema, source: Path, columns: Sequence[str]) -> bool:
    """Return whether the file's first rows have these columns in the schema's format."""
    try:
        next(read_tables(source, schema, only=columns))
    except DataError:
        return False
    return True
