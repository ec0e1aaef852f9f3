"""Detection of a CSV file's encoding and separator.

A proposed schema uses it, and the error for a file with another format. A file is always read as
its schema defines. No ε rests on a guess.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from pathlib import Path

from parley.client.data.csv_reader import open_decompressed, read_text_pieces
from parley.client.data.data_error import DataError
from parley.client.data.schema import FileFormat
from parley.safe_io import toml_writing

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_MAX_RECORDS = 200
_SEPARATOR_LINE = r"\"?sep=.?\"?[,;\t|]?"
_NUMBER = r"[-+]?(\d+[.,]?\d*|[.,]\d+)(e[-+]?\d+)?"
_PIECE_BYTES = 2**22
_SINGLE_BYTE = ("windows-1252", "latin-1")


def guess_encoding(path: str | Path) -> str:
    """Return the encoding of a file, as a value of `file.encoding`. The whole file is read."""
    found = _find_first_fitting(path)
    return "utf-8" if found == "ascii" else found


def find_encoding_remedy(path: str | Path, encoding: str) -> str:
    """Return a sentence if a CSV that is read in `encoding` is text in UTF-8; else "".

    Encodings of one byte per character read any UTF-8 without an error, and as other letters.
    """
    if encoding not in _SINGLE_BYTE or _find_first_fitting(path) != "utf-8":
        return ""
    return (
        f"The file is valid UTF-8 and is read as {encoding}, which changes letters with "
        'accents. encoding = "utf-8", under [file] or next to its path in data.files, reads it.'
    )


def _find_first_fitting(path: str | Path) -> str:
    """Return the first encoding that decodes the whole file, of ASCII, UTF-8 and Windows-1252."""
    names = ("ascii", "utf-8", "windows-1252")
    fitting = {name: codecs.getincrementaldecoder(name)() for name in names}
    with open_decompressed(path) as stream:
        piece = stream.read(_PIECE_BYTES)
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
            piece = stream.read(_PIECE_BYTES)
    return next(iter(fitting), "latin-1")


def guess_separator(path: str | Path, encoding: str) -> str:
    """Return the separator of a file; a comma unless another one fits better."""
    text = next(read_text_pieces(path, encoding), "")
    if not text.strip():
        raise DataError("at least one record", "an empty file", path=path)
    return choose_separator(text)


def find_separator_fault(path: str | Path, file: FileFormat) -> DataError | None:
    """Return the error of a CSV that looks written with another separator than `file`'s; else None.

    If the columns of a file are not those of its schema, this is the only error worth reporting.
    """
    found = guess_separator(path, file.encoding)
    if found == file.separator:
        return None
    expected = f"fields separated by {file.separator!r} (file.separator in the schema)"
    key = f"separator = {toml_writing.format_toml_value(found)}"
    remedy = f"{key} reads it, under [file] or next to its path in data.files"
    return DataError(expected, f"fields that look separated by {found!r} ({remedy})", path=path)


def choose_separator(text: str) -> str:
    """Return the separator of the records at the beginning of `text`."""
    best, found = (0, 0), ","
    for separator in SEPARATORS:
        width, records = _count_fields(text, separator)[1:]
        if width > 1 and (records, width) > best:
            best, found = (records, width), separator
    return found


def check_first_line(path: str | Path, encoding: str, separator: str, *, header: bool) -> None:
    """Raise DataError unless the first line has one name per column; describe that line."""
    text = next(read_text_pieces(path, encoding), "")
    first, width, records = _count_fields(text, separator)
    if first == width or records < 2 or not width:
        return
    expected = f"a first line with a name for each of {width} columns"
    if not header:
        raise DataError(f"{width} cells in every line", f"{first} in the first", path=path, row=1)
    got = f"one with {first} (delete the lines above the names)"
    lines = _read_records(text, separator)
    others = lines[1:]
    if re.fullmatch(_SEPARATOR_LINE, text.lstrip("\ufeff").partition("\n")[0].strip()):
        got = "Excel's line sep= (delete the lines above the names)"
    elif all(len(cells) == first + 1 and not cells[-1].strip() for cells in others):
        got = f"one with {first}, and an empty cell at every line's end (delete that separator)"
    elif first > width or _is_number(others[0][1:]) or not any(map(_is_number, others)):
        counted = "one name" if abs(width - first) == 1 else f"{abs(width - first)} names"
        less = "fewer" if first < width else "more"
        got = f"one with {first}: the header has {counted} {less} than the rows have cells"
        if first > width:
            got += " (delete the names that have no column)"
        if first == width - 1:
            got += "; are the first cells row names? Then write a name for them before the others"
    raise DataError(expected, got, path=path, row=1)


def _is_number(cells: list[str]) -> bool:
    """Return whether one of the cells is a number."""
    return any(re.fullmatch(_NUMBER, cell.strip()) for cell in cells)


def _count_fields(text: str, separator: str) -> tuple[int, int, int]:
    """Return the first record's number of fields, the commonest number, and its frequency."""
    widths = [len(fields) for fields in _read_records(text, separator)]
    width, records = max(Counter(widths).items(), key=lambda entry: entry[1], default=(1, 0))
    return (widths[0] if widths else 1), width, records


def _read_records(text: str, separator: str) -> list[list[str]]:
    """Return the fields of the first records; empty if the text is not CSV."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        return [fields for _, fields in zip(range(_MAX_RECORDS), lines, strict=False)]
    except csv.Error:
        return []
