"""Keyed digests of rows, by which an account recognises its records.

An account belongs to records. A table that grew, shrank or was corrected has rows in common with
its earlier version. It continues with the account of those rows, and its new rows join that
account. So while its columns stay the same, no record costs less than the releases it was in,
independent of the table's name and file format.

    digest(row) = first 8 bytes of BLAKE2b-256, keyed, of the row's first 16 bytes of BLAKE2b-256

The key is stored next to the ledger, in a file of mode 600. Without it a digest reveals nothing of
a row, even to someone with a list of all possible rows. Among 10⁷ rows, two are confused by chance
with probability about 3 in 10⁶, which costs budget and no privacy. An account's digests are stored
sorted, in pieces that are only ever added. The account contains a digest of the pieces, and the
chain vouches for it.

If a column divides the rows into blocks, a piece contains rows of one block that were read. A row
that is in another block than the one it was charged in has spent there, and is reported
(`count_moved`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from parley.privacy.ledger.account import DigestPiece, Digests, KnownRows
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerCorrupt, LedgerUnavailable
from parley.safe_io.os_errors import describe_cause

PIECE: Final = 1 << 17
"""Number of digests in a piece: one mebibyte."""

_KEY: Final = 32
_ROWS_AT_ONCE: Final = 1 << 16
_CHECK: Final = b"parley ledger rows"


class RowKey:
    """The key of a ledger's row digests."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "RowKey(…)"

    @property
    def key_id(self) -> str:
        """Identifier of the key."""
        return hashlib.blake2b(_CHECK, key=self._key, digest_size=8).hexdigest()

    def digest_rows(self, rows: NDArray[np.uint64]) -> Digests:
        """Return `[K]` sorted, distinct digests of `[N, 3]` rows.

        Rows are those of `parley.client.data.multiset_digest`.
        """
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
        """Return the digests of `[N, 3]` rows for each block that has a row."""
        if not rows[:, 2].any():  # avoid copying ten million rows
            return {NO_BLOCK: self.digest_rows(rows)}
        blocks = np.unique(rows[:, 2])
        of = rows[:, 2]
        return {format_block(int(b)): self.digest_rows(rows[of == b]) for b in blocks}


NO_BLOCK: Final = ""


def format_block(block: int) -> str:
    """Return a block's name in pieces, from the third number of its rows."""
    return f"{block:016x}" if block else NO_BLOCK


def load_row_key(path: Path, known: Iterable[KnownRows]) -> RowKey:
    """Load the key under which all known rows were digested; create it if there are none.

    Raises:
        LedgerConflict: the key is missing, another one, or something else is in its place.
        LedgerUnavailable: the key cannot be created.
    """
    checks = {each.key for each in known}
    if not checks and not os.path.lexists(path):
        _create_key(path)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            key = file.read(_KEY + 1)
    except OSError as error:
        raise LedgerConflict(
            f"Expected the key of the ledger's rows in {path}: {describe_cause(error)}. Move it "
            "together with the ledger."
        ) from error
    if len(key) != _KEY:
        raise LedgerConflict(f"Expected a key of {_KEY} bytes in {path}, got another file.")
    found = RowKey(key)
    if checks - {found.key_id}:
        raise LedgerConflict(
            f"Expected in {path} the key for this ledger's row digests, got another: move the key "
            "together with the ledger."
        )
    return found


def _create_key(path: Path) -> None:
    """Create a new key file and its folder, completely or not at all."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as draft:
            draft.write(os.urandom(_KEY))  # its mode is 600
            draft.flush()
            os.fsync(draft.fileno())
            with contextlib.suppress(FileExistsError):  # the first process wins
                os.link(draft.name, path)
    except OSError as error:
        raise LedgerUnavailable(
            f"Cannot create the key of the ledger's rows, {path}: {describe_cause(error)}. Let "
            "this user write that folder. For a ledger on PostgreSQL you can choose another folder "
            "by the environment variable XDG_CONFIG_HOME; keep it from then on."
        ) from error


def find_known(pieces: Iterable[DigestPiece], digests: Digests) -> NDArray[np.bool_]:
    """Return `[K]` which of the sorted `digests` an account knows."""
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
    """Return how many rows were charged in one block, have left it, and are now in another.

    Args:
        rows: block → sorted digests of all current rows.
        charged: blocks from which something was released.
    """
    of, count = set(charged), 0
    for piece in pieces:
        if piece.block in of:
            stored = np.frombuffer(piece.digests, "<u8").astype(np.uint64)
            gone = stored[~find_known([build_piece(rows.get(piece.block))], stored)]
            # Rows without a block are charged to all blocks.
            others = (own for block, own in rows.items() if block not in (piece.block, NO_BLOCK))
            count += int(sum(find_known([build_piece(gone)], own).sum() for own in others))
    return count


def build_piece(digests: Digests | None, block: str = NO_BLOCK) -> DigestPiece:
    """Return sorted digests as a piece."""
    return DigestPiece(block, b"" if digests is None else digests.astype("<u8").tobytes())


def split_into_pieces(block: str, digests: Digests) -> Iterator[DigestPiece]:
    """Yield sorted digests in pieces, as they are stored."""
    for begin in range(0, len(digests), PIECE):
        yield build_piece(digests[begin : begin + PIECE], block)


def summarise_pieces(key: str, pieces: Iterable[DigestPiece]) -> KnownRows:
    """Return an account's summary of these pieces.

    Raises:
        LedgerCorrupt: a piece is not valid.
    """
    total, count = hashlib.sha256(), 0
    for block, digests in pieces:
        sound = isinstance(digests, bytes) and isinstance(block, str)
        if not sound or len(digests) % 8 or not 8 <= len(digests) <= 8 * PIECE:
            raise LedgerCorrupt("Expected digests of rows in the ledger, got other bytes.")
        total.update(hashlib.sha256(block.encode() + b"\0" + digests).digest())
        count += 1
    return KnownRows(key=key, pieces=count, digest=total.hexdigest())
