"""Write drawn records to a file that their schema reads: a CSV of columns, an .npz of arrays.

Pieces are written as they come, so that memory does not grow with their number.
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
from parley.client.data.record_discretization import (
    build_coded_columns,
    find_array_column,
    list_class_names,
)
from parley.client.data.schema import Schema
from parley.safe_io.file_writing import replace_file

Pieces = Iterable[NDArray[Any]]


def get_file_name(schema: Schema) -> str:
    """Return the file name of a run's synthetic records."""
    return "synthetic.csv" if find_array_column(schema) is None else "synthetic.npz"


def split_rows(rows: int, max_rows: int) -> Iterator[int]:
    """Yield the number of rows of each piece.

    >>> list(split_rows(10, 4))
    [4, 4, 2]
    """
    return (min(max_rows, rows - begin) for begin in range(0, rows, max_rows))


def take_rows(chunks: Pieces, max_rows: int) -> NDArray[Any]:
    """Return `[n, columns]` the first `max_rows` rows, from as few pieces as possible."""
    kept: list[NDArray[Any]] = []
    for piece in chunks:
        kept.append(piece)
        if sum(map(len, kept)) >= max_rows:
            break
    return np.concatenate(kept)[:max_rows]


def write_rows(chunks: Pieces, schema: Schema, out: Path, *, rows: int, seed: int) -> None:
    """Write all rows to a new file, atomically.

    Args:
        seed: public; decides where in its interval a number lies.

    Raises:
        ValueError: arrays for a file that does not end with .npz.
    """
    array = find_array_column(schema)
    if array is None:
        write_table(decode_tables(chunks, schema, seed=seed), schema, out)
        return
    if out.suffix != ".npz":
        raise ValueError(f"Expected a file that ends with .npz for arrays, got {out.name}.")
    with replace_file(out) as draft:
        _write_arrays(chunks, schema, array, draft, rows)


def decode_tables(codes: Pieces, schema: Schema, *, seed: int) -> Iterator[pl.DataFrame]:
    """Yield codes as the schema's table, in pieces; ignored columns are present, and empty.

    Args:
        codes: pieces of `[n, columns]`, of `build_coded_columns(schema)`.
        seed: as in `write_rows`.
    """
    rng, columns = np.random.default_rng([seed, 1]), build_coded_columns(schema)
    for piece in codes:
        values = {
            column.name: column.sample_values(own, rng)
            for column, own in zip(columns, piece.T, strict=True)
        }
        empty = pl.repeat(None, len(piece), dtype=pl.String, eager=True)
        yield pl.DataFrame({name: values.get(name, empty) for name in schema.columns})


def write_table(frames: Iterable[pl.DataFrame], schema: Schema, out: Path) -> None:
    """Write a CSV in the schema's file format, atomically."""
    file = schema.file
    numbers = pl.selectors.float()

    # Use one text stream: an encoding with a byte-order mark writes it once.
    with replace_file(out) as draft:
        written = io.TextIOWrapper(draft, encoding=file.encoding, newline="")
        for number, frame in enumerate(frames):
            if file.decimal != ".":
                texts = numbers.cast(pl.String).str.replace(".", ",", literal=True)
                frame = frame.with_columns(texts)  # noqa: PLW2901 - the same rows, as text
            header = file.header and not number
            written.write(frame.write_csv(separator=file.separator, include_header=header))
        written.detach()


def decode_array(shares: NDArray[np.floating[Any]], column: ArrayColumn) -> NDArray[Any]:
    """Return `[n, p]` entries of an array in its own unit, from their positions in its range.

    They are whole numbers if the range is 0 to 255, as for images; else float32.
    """
    low, high = column.range
    begin, end = column.scale.apply_transform(np.array(column.range, np.float64))
    values = column.scale.invert_transform(begin + (end - begin) * shares)
    if (low, high) == (0, 255):
        return np.asarray(np.rint(values), np.uint8)
    return np.asarray(values, np.float32)


def _write_arrays(
    chunks: Pieces, schema: Schema, array: tuple[str, ArrayColumn], draft: BinaryIO, rows: int
) -> None:
    name, column = array
    labels: list[NDArray[np.int64]] = []
    kind = decode_array(np.zeros((0, column.width), np.float32), column).dtype
    with zipfile.ZipFile(draft, "w") as archive:
        with archive.open(_build_member(name), "w", force_zip64=True) as written:
            _write_header(written, kind, (rows, *column.shape))
            for piece in chunks:
                written.write(decode_array(piece[:, :-1], column).tobytes())
                labels.append(piece[:, -1].astype(np.int64))
        names = list_class_names(schema)
        whole = all(text.lstrip("-").isdecimal() for text in names)
        texts = np.array([int(text) for text in names] if whole else names)
        others = {each: np.zeros(0) for each in schema.columns if each not in schema.used}
        own = {schema.label_column: texts[np.concatenate(labels)]}
        for each, values in {**own, **others}.items():
            with archive.open(_build_member(each), "w") as written:
                _write_header(written, values.dtype, values.shape)
                written.write(values.tobytes())


def _build_member(name: str) -> zipfile.ZipInfo:
    """Build a member with ZipInfo's fixed date, so that equal records give equal files."""
    member = zipfile.ZipInfo(f"{name}.npy")
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _write_header(written: Any, kind: np.dtype[Any], shape: tuple[int, ...]) -> None:
    described = {
        "descr": np.lib.format.dtype_to_descr(kind),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(written, described)
