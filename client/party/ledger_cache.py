"""`LedgerCache`: a party's ledger, kept open between requests."""

from __future__ import annotations

import os
from pathlib import Path

from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerUnavailable


def has_ledger(path: Path) -> bool:
    """Return whether there is a ledger already. One whose creation was interrupted does not count.

    Raises:
        LedgerUnavailable: the ledger is gone, but its key is there.
    """
    if path.exists() and path.stat().st_size:
        return True
    key = path.with_name(f"{path.name}.key")
    if key.exists():
        raise LedgerUnavailable(
            f"Expected the ledger {path}, because its key exists: the ledger is missing, and with "
            f"it the record of all releases. Restore it from a backup. If you delete {key}, too, "
            "all budgets begin again with nothing spent."
        )
    return False


class LedgerCache:
    """The ledger at a path. Not for two threads at once: a service handles one request at a time.

    Opening a ledger costs more than a round's two transactions. It is opened again if the file was
    replaced (a restored backup, a ledger that was moved away). It is also opened again in a forked
    process, which must not use its parent's connection.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = LedgerCache(Path(folder) / "ledger.sqlite")
    ...     same = kept.get_ledger() is kept.get_ledger()
    ...     kept.close()
    >>> same
    True
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ledger: Ledger | None = None
        self._opened_file: tuple[int, int, int] | None = None

    def get_ledger(self) -> Ledger:
        """Return the ledger, created if there is none."""
        if self._ledger is None or self._opened_file != self._identify_file():
            self.close()
            if not has_ledger(self._path):
                self._create_ledger()
            self._path.chmod(0o600)
            self._ledger = Ledger.open(self._path)
            self._opened_file = self._identify_file()
        return self._ledger

    def _create_ledger(self) -> None:
        """Create an empty ledger atomically: a killed process leaves either all of it or none."""
        draft = self._path.with_name(f".{self._path.name}.part")
        for leftover in self._path.parent.glob(f"{draft.name}*"):
            leftover.unlink()
        # Set the mode before SQLite opens the file, because SQLite gives its companion files the
        # same mode. `touch` instead of `open`: closing a handle would release every lock of this
        # process on the file.
        draft.touch(mode=0o600)
        Ledger.open(draft).close()
        os.replace(draft, self._path)

    def close(self) -> None:
        """Close the ledger. `get_ledger` opens it again."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None and self._opened_file is not None:
            ledger.close(forked=self._opened_file[-1] != os.getpid())

    def _identify_file(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino, os.getpid()
