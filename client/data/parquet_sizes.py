"""Sizes of a Parquet file's pages, read from their headers before a page is decompressed.

A page of a few kilobytes can decompress to 2 GiB, and a reader keeps all pages of a row group. A
library that gets no memory ends its process. The Parquet reader therefore adds up the sizes in the
page headers, per row group, and refuses a file that does not fit. The footer's sizes are not used,
because no decompressor follows them. Decompressors stop at a page header's size: data beyond it are
an error.

The format is Thrift's compact protocol (https://github.com/apache/parquet-format, parquet.thrift).
Field numbers below are those of that file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_FOOTER_BYTES = 2**25
_MAX_DEPTH = 12
"""Maximum nesting of structures. A footer has 6."""
_MAX_ALLOCATION = 2**31

_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
_ENCODINGS = {0, 2, 3, 4, 5, 6, 8, 9}
"""Encodings that write each byte of a text, or refer to a page that does.

DELTA_BYTE_ARRAY (7) does not. Its texts share beginnings, so they are longer than their page.
"""


@dataclass(frozen=True, kw_only=True)
class RowGroupSize:
    """A row group's number of rows, and the bytes of the pages of the columns that are read."""

    rows: int
    bytes: int


class _ThriftReader:
    """A sequential reader of values of Thrift's compact protocol."""

    def __init__(self, data: Any, position: int, end: int) -> None:
        self._data, self.position, self._end = data, position, end

    def _read_byte(self) -> int:
        if not 0 <= self.position < self._end:
            raise ValueError("cut data")
        self.position += 1
        return int(self._data[self.position - 1])

    def _read_unsigned(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._read_byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number of more than 64 bits")

    def _read_signed(self) -> int:
        value = self._read_unsigned()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, count: int) -> int:
        if count > self._end - self.position:
            raise ValueError("cut data")
        self.position += count
        return self.position - count

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields by number; raise ValueError if a number occurs twice."""
        if depth > _MAX_DEPTH:
            raise ValueError("structures that are too deep")
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._read_byte():
            number = number + (kind >> 4) if kind >> 4 else self._read_signed()
            if number in fields:
                raise ValueError("a field that occurs twice")
            kind &= 0x0F
            fields[number] = kind == 1 if kind in (1, 2) else self._read_value(kind, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._read_byte()
            case 4 | 5 | 6:
                return self._read_signed()
            case 7:
                return self._skip(8)
            case 8:
                size = self._read_unsigned()
                begin = self._skip(size)
                return bytes(self._data[begin : begin + size])
            case 9 | 10:
                head = self._read_byte()
                size = head >> 4 if head >> 4 < 15 else self._read_unsigned()
                if size > self._end - self.position:
                    raise ValueError("cut data")
                return [self._read_value(head & 0x0F, depth + 1) for _ in range(size)]
            case 12:
                return self.read_struct(depth + 1)
        raise ValueError("a type that Parquet does not have")


def measure_row_groups(path: str | Path, columns: Collection[str]) -> list[RowGroupSize]:
    """Return the size of each row group for the columns that are read.

    Raises:
        ValueError: the file is damaged, or its columns cannot be measured. The message names the
            cause.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        if Path(path).stat().st_size < 12:
            raise ValueError("a file that is too short")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _measure(data, columns)


def _measure(data: mmap.mmap, columns: Collection[str]) -> list[RowGroupSize]:
    end = len(data) - 8
    (size,) = struct.unpack("<I", data[end : end + 4])
    if data[-4:] != b"PAR1" or size > end:
        raise ValueError("no footer of a Parquet file")
    if size > _MAX_FOOTER_BYTES:
        raise ValueError(f"a footer of more than {_MAX_FOOTER_BYTES // 2**20} MiB")
    try:
        footer = _ThriftReader(data, end - size, end).read_struct()
        names = _list_leaf_names(footer[2])
        groups = []
        for group in footer[4]:
            if len(group[1]) != len(names):
                raise ValueError("a row group without one of its columns")
            rows, parts = group[3], zip(names, group[1], strict=True)
            read = [_measure_chunk(data, own, name, rows) for name, own in parts if name in columns]
            groups.append(RowGroupSize(rows=rows, bytes=sum(read)))
        if sum(group.rows for group in groups) != footer[3]:
            raise ValueError("another number of rows in its row groups")
    except (KeyError, TypeError, IndexError, AttributeError):
        raise ValueError("a footer or page header without one of its fields") from None
    return groups


def _list_leaf_names(elements: list[dict[int, Any]]) -> list[str]:
    """Return, for each column that has pages, the name of its top-level column."""
    names: list[str] = []
    open_children = [elements[0].get(5, 0)]  # number of remaining children, per open structure
    top = ""
    for element in elements[1:]:
        while open_children and not open_children[-1]:
            open_children.pop()
        if not open_children:
            raise ValueError("a schema of other columns than it states")
        if len(open_children) == 1:
            top = element[4].decode("utf-8", "replace")
        open_children[-1] -= 1
        if children := element.get(5, 0):
            open_children.append(children)
        else:
            names.append(top)
    return names


def _measure_chunk(data: mmap.mmap, chunk: dict[int, Any], name: str, rows: int) -> int:
    """Return the bytes of a column's pages in a row group: per page, the larger of both sizes."""
    stated = chunk[3]
    if 1 in chunk or stated[3][0].decode("utf-8", "replace") != name or stated[5] != rows:
        raise ValueError("a column of another file, name or length")
    first_data = stated[9]
    position = stated.get(11) or first_data
    end = position + stated[7]
    if not 4 <= position <= end <= len(data):
        raise ValueError("pages outside of the file")
    total = values = 0
    begins = set()
    while position < end and values < rows:
        begins.add(position)
        reader = _ThriftReader(data, position, end)
        header = reader.read_struct()
        unpacked, packed = header[2], header[3]
        position = reader.position + packed
        if not (0 <= unpacked < _MAX_ALLOCATION and packed >= 0 and position <= end):
            raise ValueError("a page of more bytes than its column has")
        total += max(unpacked, packed)
        values += _count_values(header, unpacked)
    if values != rows or (rows and first_data not in begins):
        raise ValueError("pages of another number of values")
    return total


def _count_values(header: dict[int, Any], unpacked: int) -> int:
    """Return the number of rows in a page."""
    kind = header[1]
    if kind == _INDEX:
        return 0
    fields: dict[int, Any] = header[{_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[kind]]
    encoding = fields[4 if kind == _DATA_V2 else 2]
    if encoding not in _ENCODINGS:
        raise ValueError(f"the encoding {encoding} (write it with dictionaries, or plain)")
    if fields[1] < 0 or (kind == _DICTIONARY and fields[1] > unpacked):
        raise ValueError("a page of fewer bytes than values")
    return 0 if kind == _DICTIONARY else int(fields[1])
