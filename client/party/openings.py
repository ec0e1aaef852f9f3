"""The memory of openings: which sum each contribution was opened in, over all rounds and runs.

Two sums of the same contribution over two lists of survivors differ by the vectors of a few
parties, or of one, and their noise is the server's, which knows it. So a party keeps, in a file
for that alone, 32 bytes that name what it contributed and 32 that name the parties it was summed
with, before it lets the sum be opened; another list for the same contribution is refused, in
whatever round, run or session it comes. Both are digests: the file says nothing about a record to
whoever cannot guess it.

Records are appended whole and fsynced. One that a crash cut short was not answered for yet, and is
cut off.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.secure_agg.flags import unpack_mask
from parley.secure_agg.primitives import KEY_BYTES, digest

__all__ = ["OpenedOtherwise", "Openings", "listed_parties"]

_RECORD = 2 * KEY_BYTES


class OpenedOtherwise(Exception):
    """The contribution was opened in a sum over other parties."""


def listed_parties(identities: Sequence[bytes], mask: bytes) -> bytes:
    """32 bytes that name the parties of a survivors' list, whatever their order in a roster.

    Raises:
        RemoteProtocolError: no such mask.
    """
    places = np.flatnonzero(unpack_mask(mask, len(identities))).tolist()
    return digest(b"parley/listed", *sorted(identities[place] for place in places))


@dataclass(frozen=True, kw_only=True)
class Openings:
    """The file of one party; its folder's lock is held around every call.

    Attributes:
        path: made at the first opening.
    """

    path: Path

    def check(self, keys: Sequence[bytes], listed: bytes) -> None:
        """Refuses a list for contributions that were opened in a sum over another.

        Args:
            keys: what names the contribution, 32 bytes each; any one that is known is enough.
            listed: from `listed_parties`.

        Raises:
            OpenedOtherwise: another list is remembered.
        """
        if any(known != listed for known in self._lists(keys).values()):
            raise OpenedOtherwise("Expected the parties that this was summed with before.")

    def keep(self, keys: Sequence[bytes], listed: bytes) -> None:
        """Checks, then remembers; on disk when it returns, and the reveal may be sent.

        Raises:
            OpenedOtherwise: another list is remembered.
        """
        self.check(keys, listed)
        known = self._lists(keys)
        fresh = b"".join(key + listed for key in dict.fromkeys(keys) if key not in known)
        if not fresh:
            return
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(end - end % _RECORD)
            file.truncate()
            file.write(fresh)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _lists(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """List by key, of the keys that are known."""
        if not self.path.exists():
            return {}
        content, found = self.path.read_bytes(), {}
        for key in keys:
            at = content.find(key)
            while at % _RECORD and at >= 0:  # within another record: no key starts there
                at = content.find(key, at + 1)
            if 0 <= at <= len(content) - _RECORD:
                found[key] = content[at + KEY_BYTES : at + _RECORD]
        return found
