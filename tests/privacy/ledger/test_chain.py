"""Edits of the log behind the ledger's back are found."""

from __future__ import annotations

import pytest
from ledger_children import commit_and_reserve
from ledgers import an_entry, messages, tamper

from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.chain import Head
from parley.privacy.ledger.errors import LedgerCorrupt
from parley.privacy.ledger.ledger import Ledger


def three_releases(ledger: Ledger) -> Head:
    """Register, then reserve and commit twice, then reserve: records 1 to 6."""
    first = ledger.reserve((an_entry(1),))[0]
    second = commit_and_reserve(
        ledger, first.id, outcome={"survivors": 5}, checkpoint=b"one", entry=an_entry(2)
    )
    commit_and_reserve(
        ledger, second.id, outcome={"survivors": 4}, checkpoint=b"two", entry=an_entry(3)
    )
    assert ledger.verify() == []
    return ledger.head()


OTHER_BODY = "UPDATE parley_ledger_records SET body = replace(body, '.1', '.2') WHERE position = 4"


SWAP = [
    "UPDATE parley_ledger_records SET position = -1 WHERE position = 4",
    "UPDATE parley_ledger_records SET position = 4 WHERE position = 5",
    "UPDATE parley_ledger_records SET position = 5 WHERE position = -1",
]


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([OTHER_BODY], "Record 4 doesn't match"),
        (["UPDATE parley_ledger_records SET run_id = 'x' WHERE position = 3"], "Record 3 doesn't"),
        (["UPDATE parley_ledger_records SET kind = 'void' WHERE position = 3"], "Record 3 doesn't"),
        (["UPDATE parley_ledger_records SET hash = 'f00' WHERE position = 3"], "Record 3 doesn't"),
        (["UPDATE parley_ledger_records SET unit = '' WHERE position = 3"], "Record 3 makes no"),
        (["UPDATE parley_ledger_records SET body = 'no' WHERE position = 2"], "Record 2 makes no"),
        (["DELETE FROM parley_ledger_records WHERE position = 4"], "record 4 is missing"),
        (["DELETE FROM parley_ledger_records WHERE position IN (2, 3)"], "2 to 3 are missing"),
        (SWAP, "Record 4 doesn't match"),
        (["DELETE FROM parley_ledger_records WHERE position >= 5"], "its end was cut off"),
        (["UPDATE parley_ledger_head SET hash = 'f00'"], "the head's hash"),
        (["DELETE FROM parley_ledger_head"], "head record"),
        (
            [
                "UPDATE parley_ledger_accounts "
                "SET spent = replace(spent, '\"count\":3', '\"count\":1')"
            ],
            "ε = 0.3 as in the log, got ε = 0.1",
        ),
        (["UPDATE parley_ledger_accounts SET spent = '{}'"], "can't be read"),
        (
            ["UPDATE parley_ledger_accounts SET budget = replace(budget, '1.0', '9.0')"],
            "Expected the budget",
        ),
        (["DELETE FROM parley_ledger_accounts"], "in the table of accounts, it is missing"),
        (["UPDATE parley_ledger_checkpoints SET data = 'xx'"], "checkpoint of run 'run-1'"),
        (["DELETE FROM parley_ledger_checkpoints"], "it is missing"),
    ],
)
def test_verify_finds(ledger: Ledger, ledger_url: str, edits: list[str], message: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, *edits)
    found = messages(ledger)
    assert any(message in one for one in found), found


def test_one_edit_is_one_problem_of_the_chain(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    edit = "UPDATE parley_ledger_records SET body = replace(body, ':5', ':6') WHERE position = 3"
    tamper(ledger_url, edit)
    assert [problem.position for problem in ledger.verify()] == [3]


def test_a_log_that_was_rewritten_from_its_end_is_found_by_an_older_head(
    ledger: Ledger, ledger_url: str
) -> None:
    anchor = three_releases(ledger)
    assert ledger.verify(anchor=anchor) == []
    hash_ = "(SELECT hash FROM parley_ledger_records WHERE position = 5)"
    tamper(
        ledger_url,
        f"UPDATE parley_ledger_head SET records = 5, hash = {hash_}",
        "DELETE FROM parley_ledger_records WHERE position = 6",
        "UPDATE parley_ledger_accounts SET spent = replace(replace(replace(spent, "
        "'3/10', '1/5'), '3/200', '1/100'), ':3', ':2')",
    )
    assert messages(ledger) == []  # sound in itself: only something kept elsewhere tells
    (problem,) = ledger.verify(anchor=anchor)
    assert "the log was rewritten" in str(problem)


def test_an_overdrawn_budget_is_found_even_if_the_chain_is_sound(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DatasetBudget, "admits", lambda *_: True)
        for index in range(1, 13):
            ledger.reserve((an_entry(index),))
    assert "the log adds up to ε = 1.2" in messages(ledger)[0]


def test_a_damaged_checkpoint_is_not_handed_out(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, "UPDATE parley_ledger_checkpoints SET data = 'xx'")
    with pytest.raises(LedgerCorrupt, match="'run-1'"):
        ledger.checkpoint("run-1")


def test_a_record_that_cannot_be_read_says_so(ledger: Ledger, ledger_url: str) -> None:
    three_releases(ledger)
    tamper(ledger_url, "UPDATE parley_ledger_records SET body = '{}' WHERE position = 2")
    with pytest.raises(LedgerCorrupt, match="record 2"):
        ledger.entries()
