"""Which records an account is of: keyed digests of rows, so that old records are known again.

The account is of records. A table that grew, shrank or was corrected has rows in common with what
it was: it goes on with the account of those rows, and what is new in it begins where they are. So
while its columns stay the same, no record costs less than what it was released in, whatever the
table is called and however it is saved.

    digest(row) = first 8 bytes of BLAKE2b-256, keyed, of the row's first 16 bytes of BLAKE2b-256

The key stays beside the ledger, in a file of mode 600; without it nothing of a row can be told from
a digest, also by somebody who has a list of all rows that there may be. Two rows out of 10⁷ are
taken for one by chance about three times in 10⁶, which costs budget and no privacy. An account's
digests are stored sorted, in pieces that are only ever added; the account holds their digest, and
the chain vouches for that.

Where a column divides the rows into blocks, a piece is of one block, of rows that were read. A row
that stands in another block than the one it was charged in has spent there, and is told
(`count_moved`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parley.privacy.ledger.account import KnownRows
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerCorrupt

Digests = NDArray[np.uint64]

PIECE: Final = 1 << 17
"""Digests of a piece: a mebibyte."""

_KEY: Final = 32
_ROWS_AT_ONCE: Final = 1 << 16
_CHECK: Final = b"parley ledger rows"


class RowKey:
    """The key of a ledger's digests."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "RowKey(…)"

    @property
    def key_id(self) -> str:
        """Which key it is."""
        return hashlib.blake2b(_CHECK, key=self._key, digest_size=8).hexdigest()

    def digest_rows(self, rows: NDArray[np.uint64]) -> Digests:
        """`[K]` sorted digests, each once, of `[N, 3]` rows
        (`parley.client.data.content_digest`)."""
        found = []
        for begin in range(0, len(rows), _ROWS_AT_ONCE):
            piece = rows[begin : begin + _ROWS_AT_ONCE, :2].tobytes()
            keyed = (
                hashlib.blake2b(piece[at : at + 16], key=self._key, digest_size=8).digest()
                for at in range(0, len(piece), 16)
            )
            found.append(np.frombuffer(b"".join(keyed), "<u8"))
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)

    def digest_by_block(self, rows: NDArray[np.uint64]) -> dict[str, Digests]:
        """The same of each block that there is a row of, of `[N, 3]` rows."""
        if not rows[:, 2].any():  # ten million rows are not copied
            return {NO_BLOCK: self.digest_rows(rows)}
        blocks = np.unique(rows[:, 2])
        return {
            format_block(int(each)): self.digest_rows(rows[rows[:, 2] == each]) for each in blocks
        }


class DigestPiece(NamedTuple):
    """Sorted digests of rows as they are stored, all of one block."""

    block: str
    digests: bytes


NO_BLOCK: Final = ""


def format_block(block: int) -> str:
    """A block by the third number of its rows, as a piece has it."""
    return f"{block:016x}" if block else NO_BLOCK


def load_row_key(path: Path, known: Iterable[KnownRows]) -> RowKey:
    """The key in a file, under which all known rows were digested; made where none are.

    Raises:
        LedgerConflict: it is gone, or another, or something else lies there.
    """
    checks = {each.key for each in known}
    try:
        if not checks and not os.path.lexists(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _create_key(path)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            key = file.read(_KEY + 1)
    except OSError as error:
        raise LedgerConflict(
            f"Expected the key of the ledger's rows in {path}: {error.strerror}. It goes where the "
            "ledger goes."
        ) from error
    if len(key) != _KEY:
        raise LedgerConflict(f"Expected a key of {_KEY} bytes in {path}, got another file.")
    found = RowKey(key)
    if checks - {found.key_id}:
        raise LedgerConflict(
            f"Expected in {path} the key that this ledger's rows were digested under, got another: "
            "it goes where the ledger goes."
        )
    return found


def _create_key(path: Path) -> None:
    """A new key, there as a whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as draft:  # mode 600
        draft.write(os.urandom(_KEY))
        draft.flush()
        os.fsync(draft.fileno())
        with contextlib.suppress(FileExistsError):  # who comes first wins
            os.link(draft.name, path)


def find_known(pieces: Iterable[DigestPiece], digests: Digests) -> NDArray[np.bool_]:
    """`[K]` which of the sorted `digests` an account knows."""
    known = np.zeros(len(digests), dtype=bool)
    for piece in pieces:
        stored = np.frombuffer(piece.digests, "<u8")
        at = np.searchsorted(digests, stored)
        there = at < len(digests)
        at, stored = at[there], stored[there]
        known[at[digests[at] == stored]] = True
    return known


def count_moved(
    pieces: Iterable[DigestPiece], rows: Mapping[str, Digests], charged: Iterable[str]
) -> int:
    """How many rows were charged in one block, are there no longer, and stand in another.

    Args:
        rows: block → sorted digests, of all rows that there are now.
        charged: blocks that something was released from.
    """
    of, count = set(charged), 0
    for piece in pieces:
        if piece.block in of:
            stored = np.frombuffer(piece.digests, "<u8").astype(np.uint64)
            gone = stored[~find_known([build_piece(rows.get(piece.block))], stored)]
            # Rows of no block are charged to all of them.
            others = (own for block, own in rows.items() if block not in (piece.block, NO_BLOCK))
            count += int(sum(find_known([build_piece(gone)], own).sum() for own in others))
    return count


def build_piece(digests: Digests | None, block: str = NO_BLOCK) -> DigestPiece:
    """Sorted digests as a piece."""
    return DigestPiece(block, b"" if digests is None else digests.astype("<u8").tobytes())


def split_into_pieces(block: str, digests: Digests) -> Iterator[DigestPiece]:
    """Sorted digests as they are stored."""
    for begin in range(0, len(digests), PIECE):
        yield build_piece(digests[begin : begin + PIECE], block)


def summarise_pieces(key: str, pieces: Iterable[DigestPiece]) -> KnownRows:
    """What an account with these pieces says of them.

    Raises:
        LedgerCorrupt: a piece that none of ours is.
    """
    total, count = hashlib.sha256(), 0
    for block, digests in pieces:
        sound = isinstance(digests, bytes) and isinstance(block, str)
        if not sound or len(digests) % 8 or not 8 <= len(digests) <= 8 * PIECE:
            raise LedgerCorrupt("Expected digests of rows in the ledger, got other bytes.")
        total.update(hashlib.sha256(block.encode() + b"\0" + digests).digest())
        count += 1
    return KnownRows(key=key, pieces=count, digest=total.hexdigest())
