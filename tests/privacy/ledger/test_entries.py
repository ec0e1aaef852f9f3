"""What a data set's budget and a release's entry may say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from ledgers import ADULT, FACTS, an_entry

from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.ledger.chain import Head
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.errors import LedgerConflict
from parley.privacy.ledger.ledger import Ledger


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 2.0},
        {"delta": 1e-5},
        {"unit": Unit.PARTY},
        {"neighbouring": Neighbouring.ADD_OR_REMOVE_ONE},
        {"fingerprint": "sha256:ffff"},
        {"name": "adult-again"},
    ],
)
def test_a_data_set_registered_otherwise_is_refused_with_both(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    other = replace(ADULT, **change)
    with pytest.raises(LedgerConflict) as conflict:
        ledger.register(other)
    assert ADULT.description in str(conflict.value)
    assert other.description in str(conflict.value)
    assert [total.budget for total in ledger.totals()] == [ADULT]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon > 0, got 0"),
        ({"epsilon": math.nan}, "epsilon > 0, got nan"),
        ({"epsilon": math.inf}, "epsilon > 0, got inf"),
        ({"delta": 1.0}, r"delta in \[0, 1\), got 1"),
        ({"delta": math.nan}, r"delta in \[0, 1\), got nan"),
        ({"name": ""}, "printable"),
        ({"name": "a\0b"}, "printable"),
        ({"name": "x" * 201}, "at most 200"),
        ({"unit": "row"}, "row"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ADULT, **change)


def test_an_unregistered_data_set_is_refused(ledger: Ledger) -> None:
    for step in (
        lambda name: ledger.spent(name, Unit.RECORD),
        lambda name: ledger.remaining(name, Unit.RECORD),
        lambda name: ledger.reserve((an_entry(dataset=name),))[0],
    ):
        with pytest.raises(LedgerConflict, match="registered data set, got 'nowhere'"):
            step("nowhere")


@pytest.mark.parametrize(("fact", "value"), [("unit", "party"), ("neighbouring", "zero-out")])
def test_an_entry_in_another_unit_than_the_budget_is_refused(
    ledger: Ledger, fact: str, value: str
) -> None:
    with pytest.raises(LedgerConflict, match=f"Expected {fact}"):
        ledger.reserve((an_entry(facts=FACTS | {fact: value}),))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (FACTS | {"sensitivty": 1.0}, "did you mean 'sensitivity'"),
        (FACTS | {"public_n": 0}, "whole number ≥ 1, got 0"),
        (FACTS | {"public_n": True}, "whole number ≥ 1, got True"),
        (FACTS | {"sensitivity": math.nan}, "finite number"),
        (FACTS | {"sensitivity": -1.0}, "number ≥ 0, got -1"),
        (FACTS | {"sensitivity": "big"}, "number ≥ 0, got 'big'"),
        (FACTS | {"sampling_rate": 1.5}, r"\(0, 1\], got 1.5"),
        (FACTS | {"step_certificate": {"steps": {1, 2}}}, "JSON value for facts.step_certificate"),
        (FACTS | {"step_certificate": {1: 2}}, "text as a key"),
        ({key: FACTS[key] for key in FACTS if key != "norm"}, "facts norm, which are missing"),
    ],
)
def test_facts_are_checked_by_key_and_type(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        an_entry(facts=facts)


SHARED: dict[str, Any] = {
    "accounts": [
        {"adversary": "server-and-colluders", "charged": True, "epsilon": 1.0, "delta": 1e-5},
        {"adversary": "readers", "charged": False, "epsilon": 0.9, "delta": 1e-5},
        {"adversary": "all-others", "charged": False, "epsilon": None, "delta": 1e-5},
    ],
    "honest_shares": 8,
    "colluders": 1,
    "min_survivors": 9,
    "summed_shares": 9,
    "share_parameter": 0.25,
}


def test_an_entry_holds_several_accounts_of_one_release(ledger: Ledger) -> None:
    entry = an_entry(facts=FACTS | SHARED)
    reserved = ledger.reserve((entry,))[0]
    ledger.reserve((an_entry(2, facts=FACTS | {"accounts": []}),))
    assert Entry.from_json(entry.to_json()) == entry
    assert ledger.entries()[0].entry == entry
    another = [{**SHARED["accounts"][0], "epsilon": 0.5}, *SHARED["accounts"][1:]]
    with pytest.raises(LedgerConflict, match="got a change of facts"):
        ledger.reserve((an_entry(facts=FACTS | SHARED | {"accounts": another}),))
    assert ledger.reserve((entry,))[0].id == reserved.id
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "accounts",
    [
        {},
        "none",
        [None],
        [{**SHARED["accounts"][0], "unit": "record"}],
        [{k: v for k, v in SHARED["accounts"][0].items() if k != "delta"}],
        [{**SHARED["accounts"][0], "adversary": "everybody"}],
        [{**SHARED["accounts"][0], "adversary": ["server"]}],
        [{**SHARED["accounts"][0], "charged": 1}],
        [{**SHARED["accounts"][0], "epsilon": -1.0}],
        [{**SHARED["accounts"][0], "epsilon": None}],
        [{**SHARED["accounts"][0], "epsilon": "1"}],
        [{**SHARED["accounts"][0], "delta": 1.0}],
        [{**SHARED["accounts"][0], "delta": True}],
        [SHARED["accounts"][0], SHARED["accounts"][0]],
        [SHARED["accounts"][1]],
        [*SHARED["accounts"], {**SHARED["accounts"][1], "epsilon": 0.8}],
    ],
)
def test_accounts_that_are_none_are_refused(accounts: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected facts\.accounts to be a list"):
        an_entry(facts=FACTS | {"accounts": accounts})


def test_a_runs_entries_are_read_once_and_again_where_the_log_is_another(
    ledger: Ledger, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parley.privacy.ledger import replay

    parsed, original = [0], replay.reserved_entry

    def counted(*arguments: Any) -> Any:
        parsed[0] += 1
        return original(*arguments)

    monkeypatch.setattr(replay, "reserved_entry", counted)
    with Ledger.open(ledger_url) as other:  # another process, for all that matters
        for index in range(1, 6):
            held = (ledger, other)[index % 2].reserve((an_entry(index),))[0]
            assert len(ledger.entries("run-1")) == index
            ledger.commit((held.id,), outcome={"survivors": index})
            assert ledger.entries("run-1")[-1].outcome == {"survivors": index}
        assert parsed[0] == 5
        assert ledger.entries("run-1") == other.entries("run-1") == other.entries()
        assert ledger.entries("run-2") == ()
    with ledger._place.reading() as reader:
        seen = reader.entries_of("run-1", None)
        for head in (Head(records=3, hash="x"), Head(records=99, hash=seen.head.hash)):
            of_another_log = replace(seen, head=head, entries={})
            assert reader.entries_of("run-1", of_another_log) == seen


def test_an_entry_survives_json_and_does_not_follow_its_callers_dictionary() -> None:
    facts = FACTS | {"step_certificate": {"steps": [1, 2]}}
    entry = an_entry(facts=facts)
    facts["step_certificate"]["steps"].append(3)
    assert entry.facts["step_certificate"] == {"steps": [1, 2]}
    assert Entry.from_json(entry.to_json()) == entry
    with pytest.raises(TypeError):
        entry.facts["norm"] = "l1"  # type: ignore[index]
