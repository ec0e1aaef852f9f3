"""A ledger of an earlier version becomes one of today: checked whole, migrated, sealed.

Version 1 kept running totals that nothing vouched for, version 2 called the second budget of one
data set by its own name. The log says what the totals must be: a ledger whose totals, or
anything else, contradict its log is refused as it is. In a sound one no record is touched; the
record SEAL notes the digest of all accounts, and from there on records name data and unit.

Alembic runs the steps (`versions`) in the caller's transaction, behind the lock that all writers
take. Its table of revisions has been in ledgers since version 3; a ledger without one is stamped
with the version of its head. From there on the two move together, and a ledger in which they
differ is not opened (`tables.version_of`).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from parley.privacy.ledger.errors import LedgerCorrupt
from parley.privacy.ledger.tables import HEAD, REVISION, VERSION
from parley.privacy.ledger.verify import problems
from parley.privacy.ledger.writer import Writer

__all__ = ["migrate"]

_VERSIONS = Path(__file__).with_name("versions")


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
    _upgrade(connection, writer.version)
    writer.seal({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "version": VERSION})


def _upgrade(connection: sa.Connection, version: int) -> None:
    """Runs the steps that lead from `version` to today's."""
    # At INFO it lists what it does, from its import on: nothing for a terminal.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from alembic import migration, operations, script  # noqa: PLC0415 - start-up: a ledger of today needs no migration (.1 s)

    context = migration.MigrationContext.configure(
        connection, opts={"version_table": REVISION.name}
    )
    scripts = script.ScriptDirectory(_VERSIONS, version_locations=[_VERSIONS])
    context.stamp(scripts, str(version))
    for step in reversed([*scripts.iterate_revisions(str(VERSION), str(version))]):
        step.module.upgrade(operations.Operations(context))
        connection.execute(sa.update(HEAD), {"version": int(step.revision)})
        context.stamp(scripts, step.revision)
