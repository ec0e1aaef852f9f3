"""The steps from version to version: Alembic runs them, its table agrees with the ledger's head."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from ledgers import ADULT, everything, place_older, tamper

from parley.privacy.ledger.ledger import Ledger, LedgerCorrupt, LedgerError, NotALedger

REVISIONS = "parley_ledger_revision"


def test_a_new_ledger_and_a_migrated_one_have_the_same_tables_and_revision(tmp_path: Path) -> None:
    new, old = str(tmp_path / "new.sqlite"), str(tmp_path / "old.sqlite")
    place_older("linear-0.1.0", old)
    Ledger.open(new).close()
    Ledger.open(old).close()
    assert _schema(new) == _schema(old)
    assert everything(new)[REVISIONS] == everything(old)[REVISIONS] == [("3",)]


def _schema(path: str) -> dict[str, Any]:
    engine = sa.create_engine(f"sqlite:///{path}")
    seen = sa.inspect(engine)
    found = {
        table: (
            {c["name"]: (str(c["type"]), c["nullable"]) for c in seen.get_columns(table)},
            seen.get_pk_constraint(table),
            seen.get_unique_constraints(table),
            seen.get_indexes(table),
        )
        for table in seen.get_table_names()
    }
    engine.dispose()
    return found


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        ("UPDATE parley_ledger_revision SET version_num = '2'", "'2'"),
        ("UPDATE parley_ledger_revision SET version_num = '4'", "'4'"),
        ("INSERT INTO parley_ledger_revision VALUES ('4')", "'3' and '4'"),
        ("DELETE FROM parley_ledger_revision", "none"),
        ("UPDATE parley_ledger_head SET version = 2", "'3'"),
    ],
    ids=["older", "newer", "two", "none", "the head"],
)
def test_a_ledger_whose_two_versions_differ_is_refused_by_both(
    ledger: Ledger, ledger_url: str, edit: str, found: str
) -> None:
    ledger.close()
    tamper(ledger_url, edit)
    before = everything(ledger_url)
    refusal = rf"Expected revision '[23]' in {REVISIONS} .* got {found}\."
    for read_only in (True, False):
        with pytest.raises(LedgerCorrupt, match=refusal):
            Ledger.open(ledger_url, read_only=read_only)
    assert everything(ledger_url) == before


def test_a_ledger_of_a_newer_parley_is_refused_by_its_version(
    ledger: Ledger, ledger_url: str
) -> None:
    ledger.close()
    tamper(
        ledger_url,
        "UPDATE parley_ledger_head SET version = 4",
        "UPDATE parley_ledger_revision SET version_num = '4'",
    )
    with pytest.raises(NotALedger, match=r"Expected parley-ledger version 3 .* version 4\."):
        Ledger.open(ledger_url)


def test_a_ledger_of_version_3_without_a_revision_is_used_as_it_is(
    ledger: Ledger, ledger_url: str
) -> None:
    head = ledger.head()
    ledger.close()
    tamper(ledger_url, "DROP TABLE parley_ledger_revision")
    with Ledger.open(ledger_url) as opened:
        assert opened.register(ADULT) == (ADULT,)
        assert (opened.head(), opened.verify()) == (head, [])


def test_a_migration_that_fails_midway_changes_nothing(placed: Callable[[str], str]) -> None:
    """The step to version 2 is done when the one to version 3 finds its table's name taken."""
    url = placed("linear-0.1.0")
    tamper(url, "CREATE TABLE parley_ledger_accounts (name TEXT)")
    before = everything(url)
    with pytest.raises(LedgerError, match=r"already exists|no others"):
        Ledger.open(url)
    assert everything(url) == before
    tamper(url, "DROP TABLE parley_ledger_accounts")
    with Ledger.open(url) as ledger:
        assert ledger.verify() == []


OPENING = """
import logging, sys
from parley.privacy.ledger.ledger import Ledger

logging.basicConfig(level=logging.INFO)
new, old = sys.argv[1:]
Ledger.open(new).close()
Ledger.open(new).close()
assert "alembic" not in sys.modules
Ledger.open(old).close()
assert "alembic" in sys.modules
"""


def test_alembic_is_imported_to_migrate_alone_and_prints_nothing(tmp_path: Path) -> None:
    old = str(tmp_path / "old.sqlite")
    place_older("linear-0.1.0", old)
    done = subprocess.run(
        [sys.executable, "-c", OPENING, str(tmp_path / "new.sqlite"), old],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
