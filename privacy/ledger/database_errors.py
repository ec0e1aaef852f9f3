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


def _translate_sqlite(cause: Exception, place: str, lock_timeout_s: float) -> LedgerError:
    # The low byte of an extended result code is its class: https://sqlite.org/rescode.html
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return LedgerUnavailable(f"Expected room to write {place}, got: {cause}. {_UNCHANGED}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return LedgerUnavailable(
            f"Expected a ledger that can be read and written at {place}, got: {cause}. {_UNCHANGED}"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerUnavailable(
            f"Expected {place} to be free within {lock_timeout_s:.0f} s, "
            f"another process holds it. {_UNCHANGED}"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return NotALedger(f"Expected a ledger at {place}, got a file of another kind.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG):
        return LedgerCorrupt(f"Expected a sound database at {place}, got: {cause}.")
    return LedgerError(f"Expected the ledger at {place} to answer, got: {cause}.")


def _translate_postgresql(cause: Exception, place: str, lock_timeout_s: float) -> LedgerError:
    # https://www.postgresql.org/docs/current/errcodes-appendix.html
    state = getattr(cause, "sqlstate", None)
    if state is None or state.startswith(("08", "57P")):
        return LedgerUnavailable(
            f"Expected a connection to {place}, it failed. Whether the last step was recorded is "
            "not known; repeat it: the same step is never charged twice."
        )
    if state == "55P03":
        return LedgerUnavailable(
            f"Expected {place} to be free within {lock_timeout_s:.0f} s, "
            f"another process holds it. {_UNCHANGED}"
        )
    text = str(getattr(getattr(cause, "diag", None), "message_primary", "") or state)
    if state in ("25006", "42501") or state.startswith("53"):
        return LedgerUnavailable(
            f"Expected to be able to write to {place}, got: {text}. {_UNCHANGED}"
        )
    return LedgerError(f"Expected the ledger at {place} to answer, got: {text}.")
