"""The board: where every party of a run stands, for whoever watches.

A file of the run folder, `parties.json`, written whole at every change of stage and, in between, at
most every half second and at most half a second late. It holds names, states and reason classes;
nothing a party computed.
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
    """Where a party stands."""

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
        """A board with everybody offline.

        Args:
            names: of the parties, by index.
        """
        self._path = path
        self._parties = [
            {"name": name, "state": str(PartyStatus.OFFLINE), "reason": ""} for name in names
        ]
        self._round, self._stage, self._written = 0, "starting", 0.0
        self._lock = Lock()
        self._later: Timer | None = None
        self._refused = dict[str, set[int]]()  # over all rounds: a state is of the last one

    def list_names(self, indices: Iterable[int]) -> tuple[str, ...]:
        """Names of parties."""
        return tuple(self._parties[index]["name"] for index in sorted(indices))

    def replace_indices(self, text: str) -> str:
        """A message about parties by their index, with their names."""
        return with_names(text, [party["name"] for party in self._parties])

    @property
    def round(self) -> int:
        """The round that the board is about."""
        return self._round

    def set_stage(self, name: str, *, round_number: int) -> None:
        """A new stage begins."""
        with self._lock:
            self._stage, self._round = name, round_number
            self._write()

    def set_party(self, index: int, state: PartyStatus, reason: str = "") -> None:
        """A party is in another state."""
        with self._lock:
            self._parties[index] |= {"state": str(state), "reason": reason}
            if reason:
                self._refused.setdefault(reason, set()).add(index)
            self._write(now=bool(reason))

    def set_parties(self, indices: Iterable[int], state: PartyStatus) -> None:
        """Several parties are in another state."""
        with self._lock:
            for index in indices:
                self._parties[index] |= {"state": str(state), "reason": ""}
            self._write(now=False)

    def _write(self, *, now: bool = True) -> None:
        wait = self._written + _EVERY_S - time.monotonic()
        if not now and wait > 0:
            if self._later is None:
                # What comes last before a long wait is what there is to see meanwhile.
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
        write_file(self._path, format_json(content))  # a reader sees a whole board, old or new
        self._written = time.monotonic()

    def _write_late(self) -> None:
        with self._lock, suppress(OSError):  # the run, and with it its folder, may be gone
            self._write()
