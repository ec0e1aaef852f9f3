"""A ledger of version 1 or 2 becomes one of version 3: checked whole, sealed, only then believed.

Version 1 kept running totals that nothing vouched for, version 2 called the second budget of one
data set by its own name. The log says what the totals must be: a ledger whose totals, or
anything else, contradict its log is refused as it is. In a sound one no record is touched; the
record SEAL notes the digest of all accounts, and from there on records name data and unit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from parley.privacy.ledger.chain import RecordKind
from parley.privacy.ledger.errors import LedgerCorrupt
from parley.privacy.ledger.tables import VERSION
from parley.privacy.ledger.verify import problems
from parley.privacy.ledger.writer import Writer

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["migrate"]


def migrate(connection: sa.Connection, place: str) -> None:
    """Brings the ledger up to date, in the running transaction; nothing, if another process did.

    Raises:
        LedgerCorrupt: its log or its totals were edited.
    """
    writer = Writer(connection)
    if writer.version == VERSION:
        return
    found = problems(writer, None)
    if found:
        raise LedgerCorrupt(
            f"Expected a sound ledger at {place}, to bring it to version {VERSION}, got: "
            f"{found[0]} `parley ledger verify` lists all ({len(found)}); nothing was changed."
        )
    account = next(iter(writer.upgrade().values()), None)
    if account is not None:  # Without a budget the chain is empty, and so is what it vouches for.
        body = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "version": VERSION}
        writer.append(RecordKind.SEAL, account=account, body=body)
        writer.finish()
