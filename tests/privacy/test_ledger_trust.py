"""A ledger believes no row that its chain doesn't vouch for: SQL edits buy nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import split
from typing import Any

import pytest
from ledger_children import a_budget, an_entry, commit_and_reserve
from ledgers import TENTH, connected, tamper

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import Pure
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.database_connection import DatabaseConnection
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import (
    BudgetExceeded,
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
)
from parley.privacy.ledger.table_access import LedgerReader

ADULT = a_budget(1.0)
EMPTY = (
    '{"gaussians":0,"mu_squared":"0","pure_epsilon":"0","pure_rho":"0","pures":0,'
    '"releases":0,"rho_exact":"0","slack":"0"}'
)


@pytest.fixture
def exhausted(ledger_url: str) -> Iterator[Ledger]:
    """A ledger whose budget is spent: 8 releases committed, 1 voided and made again, 1 open."""
    with Ledger.open(ledger_url) as ledger:
        ledger.register(ADULT)
        for index in range(1, 9):
            ledger.commit((ledger.reserve((an_entry(index),))[0].id,), outcome={"survivors": 5})
        ledger.void((ledger.reserve((an_entry(9),))[0].id,), "too few")
        ledger.reserve((an_entry(9),))
        ledger.reserve((an_entry(10),))
    with Ledger.open(ledger_url) as ledger:
        yield ledger


INSERTED = (
    'INSERT INTO parley_ledger_records (position, kind, dataset, unit, run_id, "index", '
    "reservation, body, hash) SELECT {at}, kind, dataset, unit, run_id, 11, {at}, body, hash "
    "FROM parley_ledger_records WHERE position = 2"
)
DATASETS = "parley_ledger_accounts"
EDITS = {
    "the running total": [f"UPDATE {DATASETS} SET spent = '{EMPTY}'"],
    "the budget": [f"UPDATE {DATASETS} SET budget = replace(budget, '1.0', '9.0')"],
    "what the run holds": [
        f'UPDATE {DATASETS} SET held = \'{{"run-1":[{{"count":9,"event":'
        '{"epsilon":0.1,"kind":"pure","rho":null}}]}\''
    ],
    "another name": [f"UPDATE {DATASETS} SET name = 'x', fingerprint = 'y'"],
    "the table of data sets": [f"DELETE FROM {DATASETS}"],
    "the head": ["UPDATE parley_ledger_head SET records = 3"],
    "the head and the total": [
        "UPDATE parley_ledger_head SET records = 1, "
        "hash = (SELECT hash FROM parley_ledger_records WHERE position = 1)",
        f"UPDATE {DATASETS} SET spent = '{EMPTY}'",
    ],
    "the last record's events": [
        "UPDATE parley_ledger_records SET body = replace(body, '0.1', '0.0') "
        "WHERE position = (SELECT records FROM parley_ledger_head)",
        f"UPDATE {DATASETS} SET spent = '{EMPTY}'",
    ],
    "a reservation that was never made": [INSERTED.format(at=99)],
    "a reservation before the first": [INSERTED.format(at=-3)],
}


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS.keys())
def test_an_edited_ledger_that_was_exhausted_grants_nothing(
    exhausted: Ledger, ledger_url: str, edits: list[str]
) -> None:
    with pytest.raises(BudgetExceeded):
        exhausted.reserve((an_entry(11),))
    tamper(ledger_url, *edits)
    before = rows(ledger_url)
    for opened in (exhausted, None):  # As the run has it open, and opened again.
        with opened or Ledger.open(ledger_url, create=False) as ledger:
            for index, run in ((11, "run-1"), (1, "run-2")):
                with pytest.raises(LedgerError):
                    ledger.reserve((an_entry(index, run),))
            with pytest.raises(LedgerError):
                ledger.hold("run-2", {ADULT.key: ((TENTH, 1),)})
    assert rows(ledger_url) == before
    with Ledger.open(ledger_url, create=False) as ledger:
        assert ledger.verify()
        with pytest.raises(LedgerCorrupt):  # Every run begins with this.
            ledger.check()


def rows(url: str) -> list[Any]:
    with connected(url) as connection:
        query = "SELECT * FROM parley_ledger_{} ORDER BY 1"
        names = ("records", "accounts", "head")
        return [connection.execute(query.format(name)).fetchall() for name in names]


def test_an_edited_reservation_gives_back_no_more_than_was_charged(
    exhausted: Ledger, ledger_url: str
) -> None:
    """Voiding an open release must not subtract what an edit says that it cost."""
    larger = (
        "UPDATE parley_ledger_records SET body = replace(replace(body, '\"epsilon\":0.1', "
        "'\"epsilon\":0.9'), '0.005', '0.405') WHERE position = {at}"
    )
    reservation = exhausted.list_entries()[-1].reservation_id
    tamper(ledger_url, larger.format(at=reservation))
    with pytest.raises(LedgerCorrupt, match="head vouches for") as refused:
        exhausted.void((reservation,), "too few")
    *command, place = split(str(refused.value).split("`")[1])
    assert command == ["parley", "ledger", "verify"]
    assert repr(place) in repr(exhausted)


def test_an_earlier_release_that_was_edited_is_no_gift_when_another_is_voided(
    exhausted: Ledger, ledger_url: str
) -> None:
    reservation = exhausted.list_entries()[-1].reservation_id
    tamper(
        ledger_url,
        "UPDATE parley_ledger_records SET body = replace(replace(body, '\"epsilon\":0.1', "
        "'\"epsilon\":0.0'), '0.005', '0.0') WHERE position = 2",
    )
    exhausted.void((reservation,), "too few")
    exhausted.reserve((an_entry(10),))
    with pytest.raises(BudgetExceeded):
        exhausted.reserve((an_entry(11),))
    with pytest.raises(LedgerCorrupt, match="Record 2"):
        exhausted.check()


def test_a_given_back_release_whose_record_was_removed_is_not_taken_up_again(
    exhausted: Ledger, ledger_url: str
) -> None:
    """Without its void record a reservation would look open, and be made again for nothing."""
    exhausted.void((exhausted.list_entries()[-1].reservation_id,), "too few")
    tamper(ledger_url, "DELETE FROM parley_ledger_records WHERE kind = 'void'")
    with pytest.raises(LedgerError):
        exhausted.reserve((an_entry(10),))


def test_what_is_shown_is_vouched_for_too(exhausted: Ledger, ledger_url: str) -> None:
    tamper(ledger_url, *EDITS["the running total"])
    with Ledger.open(ledger_url, read_only=True) as reader:
        for show in (
            reader.list_accounts,
            lambda: reader.get_account("adult", Unit.RECORD).spent,
            lambda: reader.get_account("x", Unit.RECORD).remaining,
        ):
            with pytest.raises(LedgerCorrupt, match="the table was edited"):
                show()


def test_a_release_costs_the_same_however_long_the_log_is(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain vouches for a row without a walk: as many statements at round 200 as at 2."""
    statements: list[int] = []
    event = Pure(epsilon=0.001)
    with Ledger.open(ledger_url) as ledger, Ledger.open(ledger_url) as other:
        ledger.register(ADULT)
        ledger.hold("run-1", {ADULT.key: ((event, 200),)})
        held = ledger.reserve((replace(an_entry(1), event=event),))[0]
        counted, cursor = [0], DatabaseConnection._execute

        def count(self: DatabaseConnection, *asked: Any) -> Any:
            counted[0] += 1
            return cursor(self, *asked)

        monkeypatch.setattr(DatabaseConnection, "_execute", count)
        read: list[int] = []
        since = LedgerReader.load_since
        monkeypatch.setattr(
            LedgerReader,
            "load_since",
            lambda self, at: read.append(self.head.records - at) or since(self, at),
        )
        for index in range(2, 201):
            if index % 2:
                other.hold("run-2", {ADULT.key: ((event, index),)})
            counted[0] = 0
            held = commit_and_reserve(
                ledger, held.id, outcome={}, entry=replace(an_entry(index), event=event)
            )
            statements.append(counted[0])
        assert len(set(statements[1:])) == 1
        assert 1 <= max(read) <= 2
        other.end_hold("run-2")
        assert ledger.list_accounts()[0].held_counts == {}
        assert ledger.get_account("adult", Unit.RECORD).spent == Composition().add(event, 200)
        assert ledger.verify() == []


# --- the same records, saved in another way -------------------------------------------------------

RESAVED = replace(ADULT, name="copy.csv", fingerprint="sha256:ffff", contents="rows:1")


def test_records_saved_in_another_way_are_charged_to_the_same_budget(ledger_url: str) -> None:
    known = replace(ADULT, contents="rows:1")
    with Ledger.open(ledger_url) as ledger:
        assert ledger.register(ADULT) == (ADULT,)  # its rows are learned at the next run
        assert ledger.register(known) == (ADULT,)
        assert ledger.register(RESAVED) == (ADULT,)
        with pytest.raises(LedgerConflict, match="records in common"):
            ledger.register(replace(RESAVED, epsilon=2.0))
        assert [totals.budget.name for totals in ledger.list_accounts()] == ["adult"]
        # From here on the second file is known by its bytes, whatever a schema makes of them.
        assert ledger.register(replace(RESAVED, contents="rows:2")) == (ADULT,)
        assert ledger.register(
            replace(RESAVED, name="z", fingerprint="sha256:e", contents="rows:2")
        )
        assert len(ledger.list_accounts()) == 1
        assert ledger.verify() == []


def test_the_file_of_one_data_set_with_the_records_of_another_is_refused(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as ledger:
        ledger.register(replace(ADULT, contents="rows:1"))
        other = replace(ADULT, name="kdd", fingerprint="sha256:77", contents="rows:2")
        ledger.register(other)
        with pytest.raises(LedgerConflict, match="'adult' and 'kdd'"):
            ledger.register(replace(other, contents="rows:1"))


def test_both_budgets_of_a_data_set_follow_its_records(ledger_url: str) -> None:
    own = replace(ADULT, contents="rows:1")
    with Ledger.open(ledger_url) as ledger:
        pair = (own, replace(own, unit=Unit.PARTY, epsilon=0.5))
        ledger.register(*pair)
        assert ledger.register(RESAVED, replace(RESAVED, unit=Unit.PARTY, epsilon=0.5)) == pair
        with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
            ledger.register(RESAVED)


def test_a_partys_budget_is_not_opened_beside_releases_by_saving_the_file_anew(
    ledger_url: str,
) -> None:
    with Ledger.open(ledger_url) as ledger:
        ledger.register(replace(ADULT, contents="rows:1"))
        ledger.reserve((an_entry(1),))
        with pytest.raises(LedgerConflict, match="no party-level bound covers"):
            ledger.register(RESAVED, replace(RESAVED, unit=Unit.PARTY, epsilon=0.5))
        assert len(ledger.list_accounts()) == 1


def test_a_partys_budget_of_a_file_saved_anew_stands_beside_that_of_its_records(
    ledger_url: str,
) -> None:
    with Ledger.open(ledger_url) as ledger:
        ledger.register(replace(ADULT, contents="rows:1"))
        pair = (RESAVED, replace(RESAVED, unit=Unit.PARTY, epsilon=0.5))
        found = ledger.register(*pair)
        assert found == (ADULT, replace(ADULT, unit=Unit.PARTY, epsilon=0.5))
        assert ledger.register(*pair) == found
        for alone in (ADULT, RESAVED):
            with pytest.raises(LedgerConflict, match=r"privacy\.unit = 'both'"):
                ledger.register(alone)
        assert ledger.verify() == []
