"""How a CSV is written, found out from the file: encoding and separator.

For a schema that is proposed, and for the error of a file that is written otherwise: a file is read
as its schema says, and no ε rests on a guess.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from pathlib import Path

from parley.client.contract import toml_text
from parley.client.data.csv_text import open_plain, text_pieces
from parley.client.data.schema import FileFormat
from parley.client.data.table import DataError

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_RECORDS = 200
_BYTES = 2**22


def encoding_of(path: str | Path) -> str:
    """The encoding of a file, as `file.encoding` names it; the whole file is read."""
    fitting = {name: codecs.getincrementaldecoder(name)() for name in ("utf-8", "windows-1252")}
    with open_plain(path) as stream:
        piece = stream.read(_BYTES)
        if piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        while fitting:
            for name in list(fitting):
                try:
                    fitting[name].decode(piece, final=not piece)
                except UnicodeDecodeError:
                    del fitting[name]
            if not piece:
                break
            piece = stream.read(_BYTES)
    return next(iter(fitting), "latin-1")


def sniffed_separator(path: str | Path, encoding: str) -> str:
    """The separator of a file; a comma where nothing speaks for another."""
    text = next(text_pieces(path, encoding), "")
    if not text.strip():
        raise DataError("at least one record", "an empty file", path=path)
    return separator_of(text)


def other_separator(path: str | Path, file: FileFormat) -> DataError | None:
    """The fault of a CSV that looks written with another separator than `file` says; else None.

    It is the one thing to say of a file whose columns are not those of its schema.
    """
    found = sniffed_separator(path, file.encoding)
    if found == file.separator:
        return None
    expected = f"fields separated by {file.separator!r}, as file.separator of the schema says"
    remedy = f"separator = {toml_text.literal(found)} under [file] reads it"
    return DataError(expected, f"ones that look separated by {found!r} ({remedy})", path=path)


def separator_of(text: str) -> str:
    """The separator of the records that `text` begins with."""
    best, found = (0, 0), ","
    for separator in SEPARATORS:
        width, records = _widest(text, separator)[1:]
        if width > 1 and (records, width) > best:
            best, found = (records, width), separator
    return found


def check_first_line(path: str | Path, encoding: str, separator: str) -> None:
    """Raises DataError where a title, or Excel's `sep=;`, stands above the names of columns."""
    first, width, records = _widest(next(text_pieces(path, encoding), ""), separator)
    if first < width and records > 1:
        expected = f"a first line with a name for each of {width} columns"
        got = f"one with {first} (delete what stands above the names)"
        raise DataError(expected, got, path=path, row=1)


def _widest(text: str, separator: str) -> tuple[int, int, int]:
    """Fields of the first record, how many most of the others have, and how many have so many."""
    widths: list[int] = []
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        widths += (len(fields) for _, fields in zip(range(_RECORDS), lines, strict=False))
    except csv.Error:
        return 1, 1, 0
    width, records = max(Counter(widths).items(), key=lambda entry: entry[1], default=(1, 0))
    return (widths[0] if widths else 1), width, records
