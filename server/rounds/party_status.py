"""Track the state of every party of a run in a file.

The file is `parties.json` of the run folder. It is written whole at every change of stage. In
between it is written at most every half second and at most half a second late. It contains names,
states and reason classes, and nothing that a party computed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from threading import Lock, Timer

from parley.client.contract.roster import with_names
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json

_EVERY_S = 0.5


class PartyStatus(StrEnum):
    """State of a party."""

    OFFLINE = "offline"
    ONLINE = "online"
    WAITING = "waiting for approval"
    COMPUTING = "computing"
    MASKED = "masked"
    UNMASKED = "unmasked"
    DECLINED = "declined"
    DROPPED = "dropped"


class PartyStates:
    """States of the parties of one run."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        """Begin with all parties offline.

        Args:
            names: of the parties, by index.
        """
        self._path = path
        begun = {"state": str(PartyStatus.OFFLINE), "reason": ""}
        self._parties = [{"name": name, **begun} for name in names]
        self._round, self._stage, self._written = 0, "starting", 0.0
        self._lock = Lock()
        self._later: Timer | None = None
        # Over all rounds; a party's state is that of the last one.
        self._refused = dict[str, set[int]]()

    def list_names(self, indices: Iterable[int]) -> tuple[str, ...]:
        """Return the names of parties."""
        return tuple(self._parties[index]["name"] for index in sorted(indices))

    def replace_indices(self, text: str) -> str:
        """Return a message about parties with their names instead of indices."""
        return with_names(text, [party["name"] for party in self._parties])

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._path.parent

    @property
    def round(self) -> int:
        """The current round."""
        return self._round

    def set_stage(self, name: str, *, round_number: int) -> None:
        """Record that a new stage begins."""
        with self._lock:
            self._stage, self._round = name, round_number
            self._write()

    def set_party(self, index: int, state: PartyStatus, reason: str = "") -> None:
        """Record that a party changed its state."""
        with self._lock:
            self._parties[index] |= {"state": str(state), "reason": reason}
            if reason:
                self._refused.setdefault(reason, set()).add(index)
            self._write(now=bool(reason))

    def set_parties(self, indices: Iterable[int], state: PartyStatus) -> None:
        """Record that several parties changed their state."""
        with self._lock:
            for index in indices:
                self._parties[index] |= {"state": str(state), "reason": ""}
            self._write(now=False)

    def _write(self, *, now: bool = True) -> None:
        wait = self._written + _EVERY_S - time.monotonic()
        if not now and wait > 0:
            if self._later is None:
                # The last change before a long wait must become visible during the wait.
                self._later = Timer(wait, self._write_late)
                self._later.daemon = True
                self._later.start()
            return
        if self._later is not None:
            self._later.cancel()
            self._later = None
        refused = {reason: len(parties) for reason, parties in self._refused.items()}
        content = {"round": self._round, "stage": self._stage, "parties": self._parties}
        content |= {"refused": refused}
        write_file(self._path, format_json(content))  # Readers see a complete file, old or new.
        self._written = time.monotonic()

    def _write_late(self) -> None:
        with self._lock, suppress(OSError):  # The run and its folder may be gone.
            self._write()
