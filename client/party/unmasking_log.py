"""`UnmaskingLog`: the sum in which each release was unmasked, over all attempts and sessions.

A release is charged and drawn once. Two sums of it over two lists of survivors would differ by the
vectors of a few parties, with only their noise shares or with none. Before a party lets a sum be
unmasked, it therefore stores 32 bytes that name the release (`Agreement.compute_release_digest`)
and 32 bytes that name the parties it was summed with. Another list for the same release is refused.

**A release is identified by its name, never by its values.** A refusal that compared values would
reveal whether two vectors are equal. Another release, of any values, is charged by itself and has
fresh shares. Its sum over another list is covered by its own guarantee. If all noise is in a
party's contribution, which is private in any number of sums, nothing is stored. If the server adds
the noise, there is no guarantee against whoever unmasks a sum, with one list or two.

The end of the ledger is appended with every charge, in a separate record. If an older ledger is
restored, even together with all of `state`, this file reveals it.

Records are appended completely and fsynced. A record that a crash cut short was not answered for
yet, and is cut off.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.privacy.ledger.hash_chain import ChainHead
from parley.secure_agg.predicted_outcome import unpack_mask
from parley.secure_agg.primitives import KEY_BYTES, digest

_RECORD = 2 * KEY_BYTES
_HEAD_MARK = digest(b"parley/openings/ledger-head")[:24]


def sync_folder(folder: Path) -> None:
    """Fsync a folder's list of files."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class OtherSurvivorsUnmasked(Exception):
    """Error if the contribution was unmasked in a sum over other parties."""


def hash_survivors(identities: Sequence[bytes], mask: bytes) -> bytes:
    """Return 32 bytes that name the parties of a survivors' list, in any order of a roster."""
    positions = np.flatnonzero(unpack_mask(mask, len(identities))).tolist()
    return digest(b"parley/listed", *sorted(identities[position] for position in positions))


@dataclass(frozen=True, kw_only=True)
class UnmaskingLog:
    """The file of one party. The folder's lock must be held during every call."""

    path: Path

    def check(self, release: bytes, survivors: bytes) -> None:
        """Refuse a list for a release that was unmasked in a sum over another list.

        Raises:
            OtherSurvivorsUnmasked: it was.
        """
        if self._find_survivors(release) not in (None, survivors):
            raise OtherSurvivorsUnmasked(
                "Expected the parties that this release was summed with before, got others: the "
                "difference of the two sums would reveal the contributions of a few parties. A new "
                "run of the job, or its next round, is another release with its own charge."
            )

    def record(self, release: bytes, survivors: bytes) -> None:
        """Check, then store. It is on disk on return, so the reveal may then be sent."""
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
        """Append the end of the ledger, so that an older copy of the ledger is detected.

        It is not fsynced. If it is lost, only this evidence is missing.
        """
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(end - end % _RECORD)
            file.truncate()
            file.write(_HEAD_MARK + head.records.to_bytes(8, "big") + bytes.fromhex(head.hash))

    def load_ledger_head(self) -> ChainHead | None:
        """Return the last appended end of the ledger; None if there is none."""
        content = self.path.read_bytes() if self.path.exists() else b""
        at = content.rfind(_HEAD_MARK)
        while at % _RECORD and at >= 0:
            at = content.rfind(_HEAD_MARK, 0, at)
        if not 0 <= at <= len(content) - _RECORD:
            return None
        found = content[at + len(_HEAD_MARK) : at + _RECORD]
        return ChainHead(records=int.from_bytes(found[:8], "big"), hash=found[8:].hex())

    def _find_survivors(self, release: bytes) -> bytes | None:
        """Return the stored list of a release; None if there is none."""
        content = self.path.read_bytes() if self.path.exists() else b""
        position = content.find(release)
        while position % _RECORD and position >= 0:  # a match inside another record is not a name
            position = content.find(release, position + 1)
        is_recorded = 0 <= position <= len(content) - _RECORD
        return content[position + KEY_BYTES : position + _RECORD] if is_recorded else None
