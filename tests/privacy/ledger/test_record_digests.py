"""The account is of records: what a table shares with an earlier one, it has spent."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from ledgers import ADULT, TENTH, an_entry, messages, tamper
from numpy.typing import NDArray

from parley.client.data.multiset_digest import digest_rows
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import (
    BudgetExceeded,
    LedgerConflict,
    LedgerUnavailable,
)
from parley.privacy.ledger.record_digests import RowKey, load_row_key

RECORDS = np.random.default_rng(4).normal(size=(60, 3))


def table(name: str, *records: int, rows: NDArray[np.float64] = RECORDS) -> DatasetBudget:
    """A data set of some of the records."""
    contents = digest_rows(rows[list(records)], np.zeros(len(records)))
    return replace(
        ADULT,
        name=name,
        fingerprint=f"sha256:{name} {records}",
        contents=str(contents),
        rows=contents.digests,
    )


def spend(ledger: Ledger, budget: DatasetBudget, run: str) -> str:
    """Releases once from a table; the account that paid."""
    (known,) = ledger.register(budget)
    (held,) = ledger.reserve((an_entry(1, run_id=run, dataset=known.name),))
    ledger.commit([held.id], outcome={})
    return known.name


CHANGED = {
    "appended": table("b", *range(21)),
    "deleted": table("b", *range(3)),
    "corrected": table("b", *range(19), 30),
    "reordered": table("b", *reversed(range(20))),
    "one in common": table("b", 19, 30, 31),
}


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("how", CHANGED)
def test_a_table_with_a_known_record_goes_on_with_its_account(
    ledger_url: str, how: str, name: str
) -> None:
    """Under its name or under another, and whatever is new in it with it."""
    with Ledger.open(ledger_url) as ledger:
        assert spend(ledger, table("a", *range(20)), "first") == "a"
        assert spend(ledger, replace(CHANGED[how], name=name), "second") == "a"
        # The new records are known by now.
        assert spend(ledger, table("c", 20, 30), "third") in ("a", "c")
        new = {"appended": 20, "corrected": 30, "one in common": 31}.get(how)
        if new is not None:
            assert spend(ledger, table("d", new), "fourth") == "a"
        assert ledger.get_account("a", Unit.RECORD).spent.releases >= 2
        assert messages(ledger) == []


def test_the_same_file_under_another_name_is_charged_to_its_first_account(ledger_url: str) -> None:
    """A name from a relative path depends on the folder in which the command started."""
    here = table("ward.csv", *range(20))
    with Ledger.open(ledger_url) as ledger:
        assert spend(ledger, here, "first") == "ward.csv"
        assert spend(ledger, replace(here, name="north/ward.csv"), "second") == "ward.csv"
        assert [each.budget.name for each in ledger.list_accounts()] == ["ward.csv"]
        with pytest.raises(LedgerConflict, match="Budget and certificate are fixed"):
            ledger.register(replace(here, name="north/ward.csv", epsilon=9.0))
        # The file of another folder has other records, but the first one's name.
        other = table("south/ward.csv", *range(20, 40))
        assert spend(ledger, other, "third") == "south/ward.csv"
        with pytest.raises(LedgerConflict, match=r"privacy\.dataset") as conflict:
            ledger.register(replace(other, name="ward.csv"))
        assert "got records of 'south/ward.csv', which has a separate" in str(conflict.value)
        assert spend(ledger, other, "fourth") == "south/ward.csv"
        assert messages(ledger) == []


def test_other_records_have_another_account(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as ledger:
        spend(ledger, table("a", *range(20)), "first")
        assert spend(ledger, table("b", *range(20, 40)), "second") == "b"
        assert ledger.get_account("a", Unit.RECORD).spent.releases == 1
        # The same numbers in other columns are other records.
        wide = np.hstack([RECORDS, RECORDS])
        assert spend(ledger, table("c", *range(20), rows=wide), "third") == "c"


def test_a_name_keeps_its_account_whatever_becomes_of_its_table(ledger_url: str) -> None:
    """New columns are new rows to a digest: the name says that the records are not new."""
    wide = np.hstack([RECORDS, RECORDS])
    with Ledger.open(ledger_url) as ledger:
        spend(ledger, table("a", *range(20)), "first")
        assert spend(ledger, table("a", *range(20), rows=wide), "second") == "a"
        assert ledger.get_account("a", Unit.RECORD).spent.releases == 2


def test_records_of_two_accounts_are_charged_to_neither(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as ledger:
        spend(ledger, table("a", *range(10)), "first")
        spend(ledger, table("b", *range(10, 20)), "second")
        for name in ("a", "b", "c"):
            with pytest.raises(LedgerConflict, match=r"of 'a' and 'b'.*remove the records"):
                ledger.register(table(name, 9, 10))
        with pytest.raises(LedgerConflict, match=r"ε = 0\.5.*records in common"):
            ledger.register(replace(table("c", 9, 30), epsilon=0.5))
        assert messages(ledger) == []


def test_a_party_is_told_of_shared_records_and_answers_by_names_alone(ledger_url: str) -> None:
    """Whether a registration goes through must not tell who is in another table."""
    other = table("b", 19, 30)
    with Ledger.open(ledger_url) as ledger:
        ledger.register(table("a", *range(20)), among=False)
        assert ledger.register(other, among=False)[0].name == "b"
        assert other.rows is not None
        assert ledger.count_shared_rows(other.rows) == {"a": 1, "b": 2}


def test_no_record_spends_more_than_its_budget_in_a_year_of_nights(ledger_url: str) -> None:
    """A row more every night, a job every week: recounted by record, from what was released."""
    spent: dict[int, int] = defaultdict(int)
    with Ledger.open(ledger_url) as ledger:
        for night in range(0, 365, 7):
            last = 5 + night // 10
            present = range(max(0, last - 12), last)  # what is old is left out some day
            budget = table("ward" if night % 2 else f"export {night}", *present)
            try:
                spend(ledger, budget, f"week {night}")
            except BudgetExceeded:
                continue
            for record in present:
                spent[record] += 1
        assert messages(ledger) == []
    assert max(spent.values()) * TENTH.epsilon <= ADULT.epsilon + 1e-9
    assert max(spent.values()) == 10


def test_without_the_key_a_list_of_all_rows_finds_nothing(tmp_path: Path) -> None:
    """Every digest that a thief could make of every row that there may be."""
    path = tmp_path / "ledger.sqlite"
    rows = np.array(list(itertools.product(range(8), repeat=3)), dtype=np.float64)
    contents = digest_rows(rows[:20], np.zeros(20))
    with Ledger.open(path) as ledger:
        ledger.register(replace(ADULT, contents=str(contents), rows=contents.digests))
        assert ledger.count_shared_rows(digest_rows(rows, np.zeros(len(rows))).digests) == {
            "adult": 20
        }
    key = path.with_name("ledger.sqlite.key")
    assert key.stat().st_mode & 0o777 == 0o600
    stolen = path.read_bytes() + b"".join(
        each.read_bytes() for each in tmp_path.glob("ledger.sqlite-*")
    )
    every = digest_rows(rows, np.zeros(len(rows))).digests
    for guess in (
        every[:, 0],
        every[:, 1],
        RowKey(bytes(32)).digest_rows(every),
        RowKey(b"p" * 32).digest_rows(every),
    ):
        assert not any(int(each).to_bytes(8, "little") in stolen for each in guess)
    unkeyed = [blake2b(row.tobytes(), digest_size=8).digest() for row in every]
    assert not any(each in stolen for each in unkeyed)
    own = load_row_key(key, ()).digest_rows(contents.digests)
    assert own.astype("<u8").tobytes() in stolen
    assert key.read_bytes().hex() not in repr(load_row_key(key, ()))


def test_another_key_is_told_and_nothing_is_charged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    key = path.with_name("ledger.sqlite.key")
    with Ledger.open(path) as ledger:
        spend(ledger, table("a", *range(20)), "first")
        key.unlink()
        asked = table("b", *range(21))
        assert asked.rows is not None
        for step in (lambda: ledger.register(asked), lambda: ledger.count_shared_rows(asked.rows)):
            with pytest.raises(LedgerConflict, match=r"together with the ledger"):
                step()
            assert not key.exists()  # a new one would find no row again
            key.write_bytes(b"k" * 32)
            with pytest.raises(LedgerConflict, match=r"got another: move the key"):
                step()
            key.unlink()
        assert ledger.register(table("a", *range(20)))[0].name == "a"  # known by its bytes
        key.write_bytes(b"short")
        with pytest.raises(LedgerConflict, match="32 bytes"):
            ledger.register(table("b", *range(21)))
        key.unlink()
        key.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(LedgerConflict, match=r"ledger\.sqlite\.key"):
            ledger.register(table("b", *range(21)))


def test_a_key_that_cannot_be_created_is_reported_with_a_remedy(tmp_path: Path) -> None:
    """In the file's folder or, for PostgreSQL, in the user's."""
    (tmp_path / "file").touch()
    key = tmp_path / "file" / "parley" / "ledger.key"  # Not even root can create it.
    remedy = re.escape(f"{key}: a part of this path is a file") + ".*XDG_CONFIG_HOME"
    with pytest.raises(LedgerUnavailable, match=f"Cannot create .*{remedy}"):
        load_row_key(key, ())


def test_a_server_that_may_not_write_the_users_folder_can_use_a_ledger(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployment's server has no records, so its ledger has no key."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with Ledger.open(ledger_url) as ledger:
        spend(ledger, replace(ADULT, name="a", fingerprint="deployment:a"), "first")
        assert spend(ledger, replace(ADULT, name="a", fingerprint="deployment:a"), "next") == "a"
        assert ledger.verify() == []
        if "://" in ledger_url:  # A file's key is next to it.
            with pytest.raises(LedgerUnavailable, match="XDG_CONFIG_HOME"):
                ledger.register(table("b", *range(20)))
    assert not list(tmp_path.glob("*.key"))


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM parley_ledger_rows",
        "UPDATE parley_ledger_rows SET name = 'other'",
        "UPDATE parley_ledger_accounts SET rows = 'null'",
    ],
)
def test_edited_rows_are_found(ledger_url: str, edit: str) -> None:
    with Ledger.open(ledger_url) as ledger:
        ledger.register(table("a", *range(20)))
    tamper(ledger_url, edit)
    with Ledger.open(ledger_url) as ledger:
        assert messages(ledger)
