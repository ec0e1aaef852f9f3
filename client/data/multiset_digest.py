"""A digest of a table's rows as a multiset, independent of how the table is saved.

A ledger recognises data by the digest of their bytes and by this one. It is the same for the same
records in another order or format (CSV, Parquet), with other line ends, column order or spelling of
numbers (1, 1.0, 1e0). It covers the columns that are learned from, by name and kind, and each row's
parsed cells. The schema's ranges, categories and scaling are left out. Another schema of the same
columns is therefore not a new data set.

    H(row) = BLAKE2b-256 of its cells in the order of the columns' names,   T = Σ H(row) mod 2²⁵⁶

The sum is independent of the order, and sums of several files add up. It is not a commitment: two
tables with one digest can be found by searching for them. They get one budget together. The first
bytes of H, row by row, show which rows two tables share. A ledger stores them under a key
(`parley.privacy.ledger.record_digests`).

    >>> import numpy as np
    >>> one = digest_rows(np.array([[1.0, 0.5], [2.0, 0.0]]), np.array([1, -1]))
    >>> same = digest_rows(np.array([[2.0, -0.0], [1.0, 0.5]]), np.array([-1.0, 1.0]))
    >>> one == same, one == sum_contents([one, one]), str(one)[:5]
    (True, False, 'rows:')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK = 4096
"""Rows per chunk that is concatenated and hashed."""

_ROW_BYTES = 32
_MODULUS = 1 << (8 * _ROW_BYTES)


@dataclass(frozen=True, kw_only=True)
class ContentDigest:
    """The multiset of N rows: a digest of the columns' names and kinds, and T.

    Attributes:
        digests: `[N, 3]` the first 16 bytes of every H(row), and the number of its block
            (`parley.privacy.ledger.block_composition.compute_block_number`), or 0 without a block
            column. Keep them private: a list of candidate rows can be tested against them.
    """

    columns: str
    rows: int
    total: int
    digests: NDArray[np.uint64] = field(compare=False, repr=False)

    def __str__(self) -> str:
        """Return the ledger's form: a digest that does not show the number of rows."""
        text = f"{self.columns} {self.rows} {self.total:064x}"
        return "rows:" + sha256(text.encode("ascii")).hexdigest()


def sum_contents(parts: Sequence[ContentDigest]) -> ContentDigest | None:
    """Return the rows of several tables of the same columns together; None for no table."""
    if not parts:
        return None
    if len({part.columns for part in parts}) > 1:
        raise ValueError("Expected tables of the same columns, got others.")
    return ContentDigest(
        columns=parts[0].columns,
        rows=sum(part.rows for part in parts),
        total=sum(part.total for part in parts) % _MODULUS,
        digests=np.concatenate([part.digests for part in parts]),
    )


def digest_rows(rows: NDArray[Any], labels: NDArray[Any]) -> ContentDigest:
    """Return the contents of `[N, p]` prepared rows and their `[N]` labels."""
    columns, description = [to_bits(rows), to_bits(labels)], f"prepared {rows.shape[1:]}"
    return digest_columns(columns, len(labels), description=description)


def digest_columns(
    columns: list[NDArray[np.uint64]],
    rows: int,
    *,
    description: str,
    blocks: NDArray[np.uint64] | None = None,
) -> ContentDigest:
    """Return the contents of columns of 64-bit words, one row per record."""
    total, digests = 0, np.zeros((rows, 3), np.uint64)
    for begin in range(0, rows, _CHUNK):
        pieces = [column[begin : begin + _CHUNK] for column in columns]
        chunk = np.concatenate([piece.reshape(len(piece), -1) for piece in pieces], axis=1)
        width, cells = chunk.itemsize * chunk.shape[1], memoryview(chunk.tobytes())
        records = (cells[start : start + width] for start in range(0, len(cells), width))
        hashed = b"".join([blake2b(row, digest_size=_ROW_BYTES).digest() for row in records])
        total += _sum_hashes(hashed)
        digests[begin : begin + _CHUNK, :2] = np.frombuffer(hashed, "<u8").reshape(-1, 4)[:, :2]
    digest = sha256(description.encode())
    # Mix in the columns' digest: rows of other columns are other rows.
    digests[:, :2] ^= np.frombuffer(digest.digest()[:16], "<u8")
    if blocks is not None:
        digests[:, 2] = blocks
    names, total = digest.hexdigest(), total % _MODULUS
    return ContentDigest(columns=names, rows=rows, total=total, digests=digests)


def _sum_hashes(hashed: bytes) -> int:
    """Return the sum of consecutive hashes, each a whole number of `_ROW_BYTES` bytes."""
    words = np.frombuffer(hashed, ">u4").reshape(-1, _ROW_BYTES // 4)
    sums = words.sum(axis=0, dtype=np.uint64).tolist()  # below 2⁶⁴ for `_CHUNK` words
    return sum(word << (32 * at) for at, word in enumerate(reversed(sums)))


def to_bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return `[N, …]` numbers as the bits of their doubles, with one zero and one NaN."""
    if values.dtype.kind not in "biuf":
        return hash_texts([str(value) for value in values.ravel()]).reshape(values.shape)
    numbers = np.ascontiguousarray(values, dtype=np.float64) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


def hash_texts(texts: list[str]) -> NDArray[np.uint64]:
    """Return a 64-bit digest of each text."""
    hashes = {text: blake2b(text.encode(), digest_size=8).digest() for text in set(texts)}
    known = {text: int.from_bytes(digest, "big") for text, digest in hashes.items()}
    # An empty cell has the same digest in a file of text and in one of numbers.
    known[""] = int(np.float64(np.nan).view(np.uint64))
    return np.array([known[text] for text in texts], dtype=np.uint64)
