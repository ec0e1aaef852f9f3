"""The memory of openings: which sum each release was opened in, over all attempts and sessions.

A release is charged and drawn once. Two sums of it over two lists of survivors would differ by the
vectors of a few parties, with their shares of the noise alone, or none. So a party keeps 32 bytes
that name the release (`Agreement.release`) and 32 that name the parties it was summed with, before
it lets the sum be opened; another list for the same release is refused.

**A release is known by its name, never by what is in it**: a refusal that compared values would
tell whether two vectors are equal. Another release, of whatever values, is charged by itself and
has fresh shares, so that its sum over another list is covered by its own guarantee. Where all noise
is in a party's contribution, which is private in any number of sums, nothing is remembered; where
the server adds it, there is no guarantee against whoever opens a sum, with one list or two.

The end of the ledger is appended with every charge, in a separate record: whoever puts an older
ledger back, and all of `state` with it, has this file against them.

Records are appended whole and fsynced. One that a crash cut short was not answered for yet, and is
cut off.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.privacy.ledger.hash_chain import ChainHead
from parley.secure_agg.primitives import KEY_BYTES, digest
from parley.secure_agg.round_outcome import unpack_mask

_RECORD = 2 * KEY_BYTES
_HEAD_MARK = digest(b"parley/openings/ledger-head")[:24]


def sync_folder(folder: Path) -> None:
    """Fsyncs which files are in a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class OtherSurvivorsUnmasked(Exception):
    """The contribution was opened in a sum over other parties."""


def hash_survivors(identities: Sequence[bytes], mask: bytes) -> bytes:
    """32 bytes that name the parties of a survivors' list, whatever their order in a roster."""
    positions = np.flatnonzero(unpack_mask(mask, len(identities))).tolist()
    return digest(b"parley/listed", *sorted(identities[position] for position in positions))


@dataclass(frozen=True, kw_only=True)
class UnmaskingLog:
    """The file of one party; its folder's lock is held around every call."""

    path: Path

    def check(self, release: bytes, survivors: bytes) -> None:
        """Refuses a list for a release that was opened in a sum over another."""
        if self._find_survivors(release) not in (None, survivors):
            raise OtherSurvivorsUnmasked(
                "Expected the parties that this release was summed with before, got others: the "
                "difference of the two sums would be the contributions of a few. A new run of the "
                "job, or its next round, is another release and is charged by itself."
            )

    def record(self, release: bytes, survivors: bytes) -> None:
        """Checks, then remembers; on disk when it returns, and the reveal may be sent."""
        self.check(release, survivors)
        if self._find_survivors(release) is not None:
            return
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(end - end % _RECORD)
            file.truncate()
            file.write(release + survivors)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)

    def record_ledger_head(self, head: ChainHead) -> None:
        """Append the end of the ledger: an older copy of the ledger is then known as one.

        It is not fsynced: without it a witness is missing, and nothing else.
        """
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(end - end % _RECORD)
            file.truncate()
            file.write(_HEAD_MARK + head.records.to_bytes(8, "big") + bytes.fromhex(head.hash))

    def load_ledger_head(self) -> ChainHead | None:
        """Return the last end of the ledger that was appended."""
        content = self.path.read_bytes() if self.path.exists() else b""
        at = content.rfind(_HEAD_MARK)
        while at % _RECORD and at >= 0:
            at = content.rfind(_HEAD_MARK, 0, at)
        if not 0 <= at <= len(content) - _RECORD:
            return None
        found = content[at + len(_HEAD_MARK) : at + _RECORD]
        return ChainHead(records=int.from_bytes(found[:8], "big"), hash=found[8:].hex())

    def _find_survivors(self, release: bytes) -> bytes | None:
        """The list that is remembered."""
        content = self.path.read_bytes() if self.path.exists() else b""
        position = content.find(release)
        while position % _RECORD and position >= 0:  # within another record: no name starts there
            position = content.find(release, position + 1)
        is_recorded = 0 <= position <= len(content) - _RECORD
        return content[position + KEY_BYTES : position + _RECORD] if is_recorded else None
