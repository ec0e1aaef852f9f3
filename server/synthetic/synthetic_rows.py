"""Drawn records as the file that their schema reads: a CSV of columns, an .npz of arrays.

Pieces are written as they come: memory does not grow with how many there are.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.client.data.column_types import ArrayColumn
from parley.client.data.record_codes import array_of, class_names, coded_columns
from parley.client.data.schema import Schema
from parley.safe_io.file_writing import replaced_file

Pieces = Iterable[NDArray[Any]]


def file_name(schema: Schema) -> str:
    """What a run calls its synthetic records."""
    return "synthetic.csv" if array_of(schema) is None else "synthetic.npz"


def pieces(rows: int, most: int) -> Iterator[int]:
    """How many rows each piece has.

    >>> list(pieces(10, 4))
    [4, 4, 2]
    """
    return (min(most, rows - begin) for begin in range(0, rows, most))


def first_rows(drawn: Pieces, most: int) -> NDArray[Any]:
    """`[n, columns]` the first pieces, together: as few as have `most` rows, and no more rows."""
    kept: list[NDArray[Any]] = []
    for piece in drawn:
        kept.append(piece)
        if sum(map(len, kept)) >= most:
            break
    return np.concatenate(kept)[:most]


def write_rows(drawn: Pieces, schema: Schema, out: Path, *, rows: int, seed: int) -> None:
    """Writes all rows to a new file; whole or not at all.

    Args:
        seed: public; where within its part a number lies.

    Raises:
        ValueError: arrays into a file that is no .npz.
    """
    array = array_of(schema)
    if array is None:
        write_table(tables_of(drawn, schema, seed=seed), schema, out)
        return
    if out.suffix != ".npz":
        raise ValueError(f"Expected a file that ends with .npz for arrays, got {out.name}.")
    with replaced_file(out) as draft:
        _write_arrays(drawn, schema, array, draft, rows)


def tables_of(codes: Pieces, schema: Schema, *, seed: int) -> Iterator[pl.DataFrame]:
    """Codes as the table that the schema reads, in pieces; ignored columns are there, and empty.

    Args:
        codes: pieces of `[n, columns]`, of `coded_columns(schema)`.
        seed: as in `write_rows`.
    """
    rng, columns = np.random.default_rng([seed, 1]), coded_columns(schema)
    for piece in codes:
        values = {
            column.name: column.values(own, rng)
            for column, own in zip(columns, piece.T, strict=True)
        }
        empty = pl.repeat(None, len(piece), dtype=pl.String, eager=True)
        yield pl.DataFrame({name: values.get(name, empty) for name in schema.columns})


def write_table(frames: Iterable[pl.DataFrame], schema: Schema, out: Path) -> None:
    """Writes a CSV as the schema says that it is written; whole or not at all."""
    file = schema.file
    numbers = pl.selectors.float()

    # One text stream: an encoding with a mark at its beginning writes it once.
    with replaced_file(out) as draft:
        written = io.TextIOWrapper(draft, encoding=file.encoding, newline="")
        for number, frame in enumerate(frames):
            if file.decimal != ".":
                texts = numbers.cast(pl.String).str.replace(".", ",", literal=True)
                frame = frame.with_columns(texts)  # noqa: PLW2901 - the same rows, as text
            header = file.header and not number
            written.write(frame.write_csv(separator=file.separator, include_header=header))
        written.detach()


def array_values(shares: NDArray[np.floating[Any]], column: ArrayColumn) -> NDArray[Any]:
    """`[n, p]` entries of an array in its own unit, of where in its range they lie.

    Whole numbers where the range is 0 to 255, as images have; else float32.
    """
    low, high = column.range
    begin, end = column.scale.moved(np.array(column.range, np.float64))
    values = column.scale.moved_back(begin + (end - begin) * shares)
    if (low, high) == (0, 255):
        return np.asarray(np.rint(values), np.uint8)
    return np.asarray(values, np.float32)


def _write_arrays(
    drawn: Pieces, schema: Schema, array: tuple[str, ArrayColumn], draft: BinaryIO, rows: int
) -> None:
    name, column = array
    labels: list[NDArray[np.int64]] = []
    kind = array_values(np.zeros((0, column.width), np.float32), column).dtype
    with zipfile.ZipFile(draft, "w") as archive:
        with archive.open(_member(name), "w", force_zip64=True) as written:
            _header(written, kind, (rows, *column.shape))
            for piece in drawn:
                written.write(array_values(piece[:, :-1], column).tobytes())
                labels.append(piece[:, -1].astype(np.int64))
        names = class_names(schema)
        whole = all(text.lstrip("-").isdecimal() for text in names)
        texts = np.array([int(text) for text in names] if whole else names)
        others = {each: np.zeros(0) for each in schema.columns if each not in schema.used}
        own = {schema.label_column: texts[np.concatenate(labels)]}
        for each, values in {**own, **others}.items():
            with archive.open(_member(each), "w") as written:
                _header(written, values.dtype, values.shape)
                written.write(values.tobytes())


def _member(name: str) -> zipfile.ZipInfo:
    """Of ZipInfo's own fixed date: equal records are equal files."""
    member = zipfile.ZipInfo(f"{name}.npy")
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _header(written: Any, kind: np.dtype[Any], shape: tuple[int, ...]) -> None:
    described = {
        "descr": np.lib.format.dtype_to_descr(kind),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(written, described)
