"""A party's ledger, kept open from request to request."""

from __future__ import annotations

import os
from pathlib import Path

from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerUnavailable


def has_ledger(path: Path) -> bool:
    """Whether there is a ledger already; one that was begun and never made is none.

    Raises:
        LedgerUnavailable: there was one: its key is there.
    """
    if path.exists() and path.stat().st_size:
        return True
    key = path.with_name(f"{path.name}.key")
    if key.exists():
        raise LedgerUnavailable(
            f"Expected the ledger {path}, whose key is there: it is gone, and with it what was "
            f"released. Put it back. Whoever removes {key}, too, begins with budgets of which "
            "nothing is spent."
        )
    return False


class LedgerCache:
    """The ledger at a path. Not for two threads at once: a service handles one request at a time.

    To open one is more work than a round's two transactions. It is opened again where the file is
    another one than it was (a backup that was put back, a ledger that was moved away), and in a
    process that was forked, which must not use its parent's connection.

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
        """The ledger, made if there is none."""
        if self._ledger is None or self._opened_file != self._identify_file():
            self.close()
            if not has_ledger(self._path):
                self._create_ledger()
            self._path.chmod(0o600)
            self._ledger = Ledger.open(self._path)
            self._opened_file = self._identify_file()
        return self._ledger

    def _create_ledger(self) -> None:
        """An empty ledger, there as a whole or not at all, whenever this process is killed."""
        draft = self._path.with_name(f".{self._path.name}.part")
        for leftover in self._path.parent.glob(f"{draft.name}*"):
            leftover.unlink()
        # Before it is opened: SQLite gives the files beside it the mode that it has. Not by
        # opening it, whose end would end every lock that this process has on the file.
        draft.touch(mode=0o600)
        Ledger.open(draft).close()
        os.replace(draft, self._path)

    def close(self) -> None:
        """Closes the ledger; `get_ledger` opens it again."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None and self._opened_file is not None:
            ledger.close(forked=self._opened_file[-1] != os.getpid())

    def _identify_file(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino, os.getpid()
