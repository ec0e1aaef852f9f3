"""Copy a ledger to another place, and upgrade one of an older version.

A copy contains every row and the key of the row digests. It is verified against the original
before it gets its name, so a file with that name is complete. A SQLite file is never copied byte by
byte, because a running process keeps part of it in a second file. Any ledger can be copied to any
place without a ledger: from a file to PostgreSQL, too, and back.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from parley.privacy.ledger.database import Database
from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.database_schema import COLUMNS, HEAD, VERSION, build_select
from parley.privacy.ledger.hash_chain import ChainHead
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerError, LedgerUnavailable
from parley.privacy.ledger.record_digests import load_row_key
from parley.privacy.ledger.replay import check_sound, find_problems
from parley.privacy.ledger.table_access import LedgerReader

_SQLITE_COMPANIONS = ("", "-wal", "-shm")


@dataclass(frozen=True, kw_only=True)
class LedgerUpgrade:
    """An upgrade that was made.

    Attributes:
        before: the version until then.
        copy: where the ledger of that version was copied to.
        head: the end of the log, which did not change.
    """

    before: int
    copy: str
    head: ChainHead


@contextmanager
def _open_for_reading(place: str | os.PathLike[str]) -> Iterator[tuple[Database, LedgerReader]]:
    database = Database(place, create=False, read_only=True)
    with closing(database), database.open_reader() as reader:
        yield database, reader


def copy_ledger(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> ChainHead:
    """Copy a ledger that may be in use to a path or URL without one; return the end of its log.

    Raises:
        LedgerCorrupt: the ledger, or its copy, is not sound.
        LedgerConflict: there is a ledger at the target, or the key of the rows is missing.
    """
    with _open_for_reading(source) as (place, reader):
        _write_copy(place, reader, target)
        return reader.head


def upgrade_ledger(
    location: str | os.PathLike[str], copy: str | os.PathLike[str] | None = None
) -> LedgerUpgrade | None:
    """Upgrade a ledger to the current version; return None if it has that version.

    Other writers wait until the end. The ledger is verified, copied, changed and verified again,
    in one transaction.

    Args:
        copy: where the old ledger is copied to. By default next to a file, named `.version-6`.

    Raises:
        LedgerCorrupt: the ledger is not sound before or after; it is left as it was.
        LedgerConflict: the copy's place is not free.
        LedgerError: a ledger on PostgreSQL, and no place for the copy.
    """
    with _open_for_reading(location) as (_, reader):
        version = reader.version
    if version == VERSION:
        return None
    with closing(Database(location, create=False, read_only=False, upgrading=True)) as place:
        if copy is None and place.path is None:
            raise LedgerError(f"Expected a place for the copy of {place.name}: add --copy FILE.")
        if copy is None:
            copy = f"{place.path}.version-{version}"
        with place.open_connection(lock=True) as connection:
            reader = LedgerReader(connection, place.name, lock=True)
            if reader.version == VERSION:  # another process was faster
                return None
            if not _is_copied(reader, copy):
                _write_copy(place, reader, copy)
            connection.update(HEAD, {"version": VERSION}, {"id": 1})
            upgraded = LedgerReader(connection, place.name, accepted=(VERSION,))
            check_sound(find_problems(upgraded, reader.head), place.name)
            connection.commit()
    return LedgerUpgrade(before=version, copy=os.fspath(copy), head=reader.head)


def _write_copy(place: Database, reader: LedgerReader, target: str | os.PathLike[str]) -> None:
    check_sound(find_problems(reader), place.name)
    key_path = place.key_path
    known = [account.rows for account in reader.load_accounts().values() if account.rows]
    if known:
        load_row_key(key_path, known)
    if "://" in os.fspath(target) and not os.fspath(target).startswith("sqlite://"):
        _fill(reader, key_path if known else None, target)
        return
    path = Path(os.fspath(target).removeprefix("sqlite://"))
    with _convert_os_errors(path), _name_at_the_end(path) as draft:
        _fill(reader, None, draft)
        if known:
            _copy_key(key_path, path.with_name(path.name + ".key"))


def _is_copied(reader: LedgerReader, target: str | os.PathLike[str]) -> bool:
    """Return whether a file is a sound copy already: an upgrade was ended after it."""
    if "://" in os.fspath(target) or not os.path.lexists(target):
        return False
    try:
        with _open_for_reading(target) as (place, copied):
            check_sound(find_problems(copied, reader.head), place.name)
            return (copied.version, copied.head) == (reader.version, reader.head)
    except LedgerError:
        return False


def _fill(reader: LedgerReader, key: Path | None, target: str | os.PathLike[str]) -> None:
    """Fill a new ledger and verify it."""
    with closing(Database(target, create=True, read_only=False)) as place:
        if key is not None:
            with _convert_os_errors(place.key_path):
                _copy_key(key, place.key_path)
        with place.open_connection(lock=True) as connection:
            own = LedgerReader(connection, place.name, lock=True)
            if own.head.records:
                raise LedgerConflict(
                    f"Expected no ledger at {place.name}, there is one with {own.head.records} "
                    "records. Nothing was copied."
                )
            copy_rows(reader, connection)
            connection.commit()
    with _open_for_reading(target) as (place, copied):
        check_sound(find_problems(copied, reader.head), place.name)


def copy_rows(reader: LedgerReader, connection: DatabaseConnection) -> None:
    """Copy the rows of all tables into the tables of an empty ledger."""
    for table in COLUMNS:
        for row in reader.connection.fetch_rows(build_select(table)):
            if table == HEAD:
                connection.update(table, row, {"id": 1})
            else:
                connection.insert(table, row)


def _copy_key(key: Path, target: Path) -> None:
    """Copy the key of the row digests, unless it is there."""
    content = key.read_bytes()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.lexists(target):
        if target.is_symlink() or target.read_bytes() != content:
            raise LedgerConflict(
                f"Expected no key, or this ledger's, in {target}, got another. Nothing was copied."
            )
        target.chmod(0o600)
        return
    with _name_at_the_end(target) as draft, draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _name_at_the_end(path: Path) -> Iterator[Path]:
    """Yield the path of an empty draft, which gets its name when the block ends."""
    if os.path.lexists(path):
        raise LedgerConflict(f"Expected no file at {path}, got one. Nothing was copied.")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield draft
        os.link(draft, path)  # fails if another process was faster
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        for end in _SQLITE_COMPANIONS:
            with suppress(FileNotFoundError):
                os.unlink(f"{draft}{end}")


@contextmanager
def _convert_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise LedgerConflict(f"Expected no file at {path}, got one. Nothing was copied.") from None
    except OSError as error:
        said = f"Cannot write {path}: {error.strerror}. Nothing was copied."
        raise LedgerUnavailable(said) from error
