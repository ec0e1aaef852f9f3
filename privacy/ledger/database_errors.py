"""Translate database errors into messages that a person can act on."""

from __future__ import annotations

import sqlite3

from parley.privacy.ledger.ledger_errors import (
    LedgerCorrupt,
    LedgerError,
    LedgerUnavailable,
    NotALedger,
)

_UNCHANGED = "Nothing was recorded and nothing is spent."


def translate_error(error: Exception, place: str, lock_timeout_s: float) -> LedgerError:
    """Return the `LedgerError` for an exception that a driver raised at `place`."""
    said = _translate_sqlite if isinstance(error, sqlite3.Error) else _translate_postgresql
    return said(error, place, lock_timeout_s)


def _build_locked(place: str, timeout_s: float) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"Another process has used {place} for more than {timeout_s:.0f} s. Try again when it has "
        f"finished. {_UNCHANGED}"
    )


def _translate_sqlite(cause: Exception, place: str, lock_timeout_s: float) -> LedgerError:
    # The low byte of an extended result code is its class: https://sqlite.org/rescode.html
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return LedgerUnavailable(f"Cannot write {place}: {cause}. Check its disk. {_UNCHANGED}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return LedgerUnavailable(
            f"The ledger at {place} cannot be read and written: {cause}. Check its permissions. "
            f"{_UNCHANGED}"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _build_locked(place, lock_timeout_s)
    if code == sqlite3.SQLITE_NOTADB:
        return NotALedger(f"Expected a ledger at {place}, got another kind of file.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG):
        return LedgerCorrupt(f"Expected a sound database at {place}, got a damaged one: {cause}.")
    return LedgerError(f"The ledger at {place} failed: {cause}.")


def _translate_postgresql(cause: Exception, place: str, lock_timeout_s: float) -> LedgerError:
    # https://www.postgresql.org/docs/current/errcodes-appendix.html
    state = getattr(cause, "sqlstate", None)
    if state is None or state.startswith(("08", "57P")):
        return LedgerUnavailable(
            f"The connection to {place} failed. The last step may or may not be recorded. Repeat "
            "it: the same step is never charged twice."
        )
    if state == "55P03":
        return _build_locked(place, lock_timeout_s)
    text = str(getattr(getattr(cause, "diag", None), "message_primary", "") or state)
    if state in ("25006", "42501") or state.startswith("53"):
        return LedgerUnavailable(f"Cannot write to {place}: {text}. {_UNCHANGED}")
    return LedgerError(f"The ledger at {place} failed: {text}.")
