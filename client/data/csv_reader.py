"""A reader of CSV text of any size, in batches of whole records, decompressed on the way.

A batch ends at the end of a record: at a line end outside quotation marks. Without a quotation mark
in the batch, that is its last line end. Otherwise Python's `csv` finds the ends of records. Every
batch stores the number of its first line, so that an error can name a cell's line.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from parley.client.data.data_error import DataError
from parley.client.data.raw_table import RawTable
from parley.client.data.schema import FileFormat
from parley.client.data.table_formats import ReadRequest
from parley.safe_io.os_errors import describe_cause

_PIECE_BYTES = 2**22
"""Bytes read at a time."""

_MAX_RECORD_CHARS = 2**24
"""Maximum number of characters of a record (or gap)."""

_TOO_LONG = "a longer one (a quotation mark that is never closed?)"
_MAX_COLUMNS = 2**16
_MAX_SEPARATORS = 2**18
"""Maximum number of separators of a record, including those within quoted text. No table has more
fields.
"""


@contextlib.contextmanager
def open_decompressed(path: str | Path) -> Iterator[BinaryIO]:
    """Open the file's content as a stream, decompressed if it is gzip."""
    try:
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            yield cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
    except FileNotFoundError:
        raise DataError("a file", "nothing there", path=path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError("complete gzip data", str(error).rstrip("."), path=path) from error
    except OSError as error:
        raise DataError("a readable file", describe_cause(error), path=path) from error


def read_text_pieces(path: str | Path, encoding: str) -> Iterator[str]:
    """Yield the file's text, a few MiB at a time, without a byte-order mark."""
    decoder = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)()
    line = 1
    with open_decompressed(path) as stream:
        while True:
            piece = stream.read(_PIECE_BYTES)
            try:
                text = decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                at = line + error.object[: error.start].count(b"\n")
                got = f"byte 0x{error.object[error.start]:02x}"
                remedy = ' (file.encoding = "windows-1252" reads files of older Windows programs)'
                expected = f"text in {encoding}{remedy if encoding == 'utf-8' else ''}"
                raise DataError(expected, got, path=path, row=at) from None
            line += text.count("\n")
            if text:
                yield text
            if not piece:
                return


class _BoundedLines:
    """The lines of a text for Python's `csv`, which makes an object of every field of a record.

    Raises:
        DataError: a record has more separators than any table's, before its fields are made.
    """

    def __init__(self, text: str, separator: str, *, path: str | Path, line: int) -> None:
        self._lines, self._separator = io.StringIO(text, newline="\n"), separator
        self._path, self._line = path, line
        self._passed = self._separators = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._separators += line.count(self._separator)
            if self._separators > _MAX_SEPARATORS:
                expected = f"records of at most {_MAX_SEPARATORS + 1:,} fields"
                raise DataError(expected, "a wider one", path=self._path, row=self._line)
            self._passed += len(line)
            self._line += 1
            yield line

    def end_record(self) -> int:
        """Reset the record's count and return the number of characters read so far."""
        self._separators = 0
        return self._passed


@dataclass(frozen=True, kw_only=True)
class CsvBatch:
    """Some whole records: their lines without the last end.

    Attributes:
        line: number (from 1) of the first line in the file.
    """

    path: str
    text: str
    line: int
    separator: str

    def parse_records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each record's first line and its fields, as Python's `csv` reads them."""
        # Lines end only at \n. The csv module removes the \r of \r\n. Strict, because a quotation
        # mark that is never closed would merge all following records into one cell.
        lines = _BoundedLines(self.text, self.separator, path=self.path, line=self.line)
        reader = csv.reader(lines, delimiter=self.separator, strict=True)
        begin = self.line
        try:
            for fields in reader:
                lines.end_record()
                yield begin, fields
                begin = self.line + reader.line_num
        except csv.Error as error:
            raise _build_csv_error(error, path=self.path, line=begin) from error

    def find_line(self, record: int) -> int:
        """Return the line on which record `record` (from 0) begins."""
        if '"' not in self.text:
            return self.line + record
        return next(line for k, (line, _) in enumerate(self.parse_records()) if k == record)

    def parse_rows(self, width: int) -> list[list[str]]:
        """Return the fields of all records, `width` in each.

        Raises:
            DataError: a record has another number of fields.
        """
        rows: list[list[str]] = []
        for line, fields in self.parse_records():
            if len(fields) != width:
                got = "an empty line" if not fields else f"{len(fields)}"
                raise DataError(f"{width} fields", got, path=self.path, row=line)
            rows.append(fields)
        return rows


def read_csv_batches(path: str | Path, *, separator: str, encoding: str) -> Iterator[CsvBatch]:
    """Yield the records of a CSV, header included, in batches, without trailing line ends."""
    rest, line = "", 1
    pieces = read_text_pieces(path, encoding)
    while True:
        piece = next(pieces, None)
        rest += piece or ""
        cut = len(rest) if piece is None else _find_records_end(rest, separator, path, line)
        body = rest[:cut].rstrip("\r\n")
        if body:
            yield CsvBatch(path=str(path), text=body, line=line, separator=separator)
            # Empty lines may be the file's end, so they are kept until more text follows.
            line += body.count("\n") + 1
            rest = rest[len(body) :].partition("\n")[2]
        if piece is None:
            return
        if len(rest) > _MAX_RECORD_CHARS:
            expected = f"records of at most {_MAX_RECORD_CHARS:,} characters"
            raise DataError(expected, _TOO_LONG, path=path, row=line)


def _find_records_end(text: str, separator: str, path: str | Path, line: int) -> int:
    """Return the end of the last record that surely ends within `text`, given that more follows."""
    if '"' not in text:
        return text.rfind("\n") + 1
    before = end = 0
    lines = _BoundedLines(text, separator, path=path, line=line)
    try:
        for _ in csv.reader(lines, delimiter=separator):
            # The last record may continue in the text to come.
            before, end = end, lines.end_record()
    except csv.Error as error:
        at = line + text[:end].count("\n")
        raise _build_csv_error(error, path=path, line=at) from error
    return before


def _build_csv_error(error: csv.Error, *, path: str | Path, line: int) -> DataError:
    text, limit = str(error), csv.field_size_limit()
    text_after = "text after it (is a mark never closed, or not doubled within a field?)"
    for part, expected, got in (
        ("unexpected end of data", "a quotation mark that is closed", "the end of the file"),
        ("expected after", "a quotation mark that ends its field", text_after),
        ("new-line character", "lines that end in \\n or \\r\\n", "\\r within a line"),
        ("field larger", f"fields of at most {limit:,} characters", _TOO_LONG),
    ):
        if part in text:
            return DataError(expected, got, path=path, row=line)
    return DataError("CSV", text, path=path, row=line)


def read_csv_names(path: str | Path, file: FileFormat) -> list[str]:
    """Return the columns' names; without a header column_1, column_2, …, one per field."""
    batch = next(read_csv_batches(path, separator=file.separator, encoding=file.encoding), None)
    if batch is None:
        raise DataError("at least one record", "an empty file", path=path)
    first = next(batch.parse_records())[1]
    if len(first) > _MAX_COLUMNS:
        raise DataError(f"at most {_MAX_COLUMNS:,} columns", f"{len(first):,}", path=path, row=1)
    if file.header:
        return [name.strip() for name in first]
    return [f"column_{at}" for at in range(1, len(first) + 1)]


def read_csv_tables(path: str | Path, request: ReadRequest) -> Iterator[RawTable]:
    """Yield the wanted cells of a CSV with columns `names`, as text, in batches."""
    file, names = request.schema.file, list(request.names)
    header = file.header
    for batch in read_csv_batches(path, separator=file.separator, encoding=file.encoding):
        content, header = (_drop_header(batch) if header else batch), False
        if not content.text:
            continue
        # Without quotation marks every line is a record, so counting does not need the text.
        lines = content if '"' in content.text else replace(content, text="")
        yield RawTable(
            path=str(path),
            # By exact names: `select` takes patterns.
            frame=_parse_cells(content, names)[list(request.wanted)],
            typed=False,
            null_values=file.null_values,
            decimal=file.decimal,
            row_unit="line",
            row_number=lines.find_line,
        )


def _drop_header(batch: CsvBatch) -> CsvBatch:
    begin = next((line for k, (line, _) in enumerate(batch.parse_records()) if k == 1), None)
    if begin is None:
        return replace(batch, text="")
    return replace(batch, text=batch.text.split("\n", begin - batch.line)[-1], line=begin)


def _parse_cells(batch: CsvBatch, names: list[str]) -> pl.DataFrame:
    """Return the batch as a frame of text. A record's cells do not depend on other records."""
    text, types = batch.text, dict.fromkeys(names, pl.String)
    quoted = '"' in text
    lines = text.count("\n") + 1
    # For a record of millions of fields, polars creates millions of columns before it refuses it.
    narrow = text.count(batch.separator) - lines * (len(names) - 1) <= _MAX_SEPARATORS
    # Only polars removes a byte-order mark, and takes \r within a line as part of its cell.
    if narrow and not text.startswith("\ufeff") and text.count("\r") == text.count("\r\n"):
        # If polars raises (a record too wide, a quotation mark within a field), the slower parser
        # below reads the batch.
        with contextlib.suppress(pl.exceptions.PolarsError):
            frame = pl.read_csv(
                text.encode(),
                has_header=False,
                separator=batch.separator,
                schema=types,
                quote_char='"' if quoted else None,
                truncate_ragged_lines=False,
            )
            # A record with too few fields ends in null, and so does one with an empty last field. A
            # quotation mark within a field can merge two records.
            if not (quoted or frame[names[-1]].null_count()):
                return frame
            if len(batch.parse_rows(len(names))) == frame.height:
                return frame
    columns = zip(*batch.parse_rows(len(names)), strict=True)
    return pl.DataFrame(dict(zip(names, columns, strict=True)), types)
