"""The account by block: a release is charged to the blocks that it reads, and to no record else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from ledgers import ADULT, TENTH, an_entry, messages

from parley.client.data.multiset_digest import digest_rows
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import Pure
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.block_composition import (
    MAX_BLOCKS,
    Blocks,
    SpentByBlock,
    compute_block_number,
    parse_blocks,
)
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict

NAMES = ("a", "b", "c")
READS = st.sets(st.sampled_from(NAMES)).map(lambda names: tuple(sorted(names)))


def table(records: Mapping[int, str], reads: Blocks, name: str = "ward") -> DatasetBudget:
    """A data set of some records, each in its block."""
    rows = np.array([[np.sin(each), np.cos(each)] for each in records])
    contents = digest_rows(rows, np.zeros(len(rows)))
    contents.digests[:, 2] = [compute_block_number(each) for each in records.values()]
    return replace(
        ADULT,
        name=name,
        fingerprint=f"sha256:{hash(tuple(sorted(records.items())))}",
        contents=str(contents),
        rows=contents.digests,
        reads=reads,
    )


def spend(ledger: Ledger, budget: DatasetBudget, run: str) -> None:
    """Releases once from the blocks that are read."""
    (known,) = ledger.register(budget)
    entry = an_entry(1, run_id=run, dataset=known.name, blocks=budget.reads)
    (held,) = ledger.reserve((entry,))
    ledger.commit([held.id], outcome={})


def spent(ledger: Ledger, block: str) -> int:
    (totals,) = ledger.list_accounts()
    return totals.charged.get_compositions((block,))[block].releases


@given(st.lists(st.tuples(READS, st.integers(1, 3), st.booleans()), max_size=12))
def test_an_account_is_never_below_what_any_record_has_spent(
    releases: list[tuple[Blocks, int, bool]],
) -> None:
    """Recounted for a record of each block, and of one that nobody named; some are given back."""
    account, kept = SpentByBlock(), list[tuple[Blocks, Pure]]()
    for reads, tenths, stays in releases:
        event = Pure(epsilon=tenths / 10)
        account = account.add(event, reads)
        if stays:
            kept.append((reads, event))
        else:
            account = account.remove(event, reads)
    for block in (*NAMES, "d"):
        own = Composition.from_events(event for reads, event in kept if not reads or block in reads)
        assert account.get_compositions((block,))[block] == own
        assert (
            account.find_largest(
                lambda each: each.compute_lowest_epsilon(0.0)[1]
            ).compute_lowest_epsilon(0.0)[1]
            >= own.compute_lowest_epsilon(0.0)[1]
        )
    assert SpentByBlock.from_json(account.to_json()) == account


def test_no_record_spends_more_than_its_budget_in_a_year_of_weeks(ledger_url: str) -> None:
    """Rows come every week, some go, some are corrected; a job a week on the last months."""
    paid, present, refused = Counter[int](), dict[int, str](), Counter[str]()
    with Ledger.open(ledger_url) as ledger:
        for week in range(52):
            month = f"2026-{1 + week // 5:02}"
            present |= {3 * week + each: month for each in range(3)}
            if week % 6 == 5:
                del present[3 * (week - 5)]  # deleted
                block = present.pop(3 * (week - 4))
                present[1000 + week] = block  # corrected: another row of the same block
                paid[1000 + week] = paid[3 * (week - 4)]
            months = sorted(set(present.values()))
            # Every third job reads three months, every tenth all of them.
            reads = () if week % 10 == 9 else tuple(months[-3 if week % 3 else -1 :])
            try:
                spend(ledger, table(present, reads), f"week {week}")
            except BudgetExceeded:
                refused[month] += 1
                continue
            for record, block in present.items():
                paid[record] += not reads or block in reads
        assert messages(ledger) == []
        assert max(paid.values()) == 10
        assert refused
        (totals,) = ledger.list_accounts()
        used = {block: own.releases for block, own in totals.charged.get_compositions(()).items()}
        for record, block in present.items():
            assert paid[record] <= used.get(block, used[""]) <= 10
        # What is new has all that jobs on all records left of it.
        assert used[""] == 1
        spend(ledger, table({9999: "2027-01"}, ("2027-01",)), "next year")
        assert spent(ledger, "2027-01") == 2


def test_jobs_on_other_blocks_leave_a_blocks_budget_whole(ledger_url: str) -> None:
    records = {1: "2023", 2: "2024"}
    with Ledger.open(ledger_url) as ledger:
        for run in range(10):
            spend(ledger, table(records, ("2023",)), f"old {run}")
        for reads in (("2023",), ("2023", "2024"), ()):
            with pytest.raises(BudgetExceeded) as refusal:
                spend(ledger, table(records, reads), "one more")
            assert "no room in '2023'; room in " in str(refusal.value)
            assert "every block that no job has named yet (data.blocks" in str(refusal.value)
        assert "room in '2024'" in str(refusal.value) or reads == ()
        spend(ledger, table(records, ("2024",)), "new")
        assert (spent(ledger, "2023"), spent(ledger, "2024")) == (10, 1)
        assert ledger.get_account("ward", Unit.RECORD).spent.releases == 10  # the largest
        assert ledger.get_account("ward", Unit.RECORD).remaining == pytest.approx(0, abs=1e-9)
        assert messages(ledger) == []


def test_a_run_holds_of_its_blocks_alone_and_goes_on_after_a_kill(ledger_url: str) -> None:
    records = {1: "2023", 2: "2024"}
    both, old, new = ("2023", "2024"), ("2023",), ("2024",)
    with Ledger.open(ledger_url) as ledger:
        (known,) = ledger.register(table(records, both))
        ledger.hold("first", {known.key: ((TENTH, 8),)}, old)
        ledger.hold("second", {known.key: ((TENTH, 8),)}, new)
        for reads in (old, new, both, ()):
            with pytest.raises(BudgetExceeded, match="more is held"):
                ledger.hold("third", {known.key: ((TENTH, 3),)}, reads)
        ledger.hold("third", {known.key: ((TENTH, 2),)}, both)
        entry = an_entry(1, run_id="first", dataset="ward", blocks=old)
        (held,) = ledger.reserve((entry,))
    with Ledger.open(ledger_url) as ledger:  # killed, and begun again
        (again,) = ledger.reserve((entry,))
        assert (again.id, again.resumed) == (held.id, True)
        with pytest.raises(LedgerConflict, match="a change of blocks"):
            ledger.reserve((replace(entry, blocks=new),))
        # What was held for some blocks pays for no others.
        for reads in (new, both, ()):
            with pytest.raises(BudgetExceeded):
                ledger.reserve((replace(entry, index=2, blocks=reads),))
        ledger.reserve((replace(entry, index=2),))
        ledger.void([held.id], "nothing came of it")
        assert spent(ledger, "2023") == 1
        ledger.end_hold("first")
        (totals,) = ledger.list_accounts()
        assert totals.held_counts == {"second": 8, "third": 2}
        assert messages(ledger) == []


def test_no_choice_of_blocks_makes_the_log_grow_uncharged(ledger_url: str) -> None:
    records = {each: f"20{each:02}" for each in range(8)}
    chosen = [blocks for size in (1, 2, 3) for blocks in combinations(records.values(), size)]
    with Ledger.open(ledger_url) as ledger:
        for blocks in (*chosen, *chosen):
            ledger.register(table(records, blocks))
        assert ledger.get_head().records == len(records)  # each block is new once
        assert messages(ledger) == []


def test_a_record_that_changed_its_block_gets_no_second_budget(ledger_url: str) -> None:
    before, after = {1: "2023", 2: "2023", 3: "2024"}, {1: "2024", 2: "2023", 3: "2024"}
    with Ledger.open(ledger_url) as ledger:
        # Of what nothing was released a block may be put right.
        spend(ledger, table({**before, 3: "2025"}, ("2023",)), "first")
        spend(ledger, table(before, ("2024",)), "second")
        for reads in (("2023",), ("2024",), ()):
            for name in ("ward", "export"):
                with pytest.raises(LedgerConflict, match="1 in another block, with a fresh budget"):
                    ledger.register(table(after, reads, name))
        rows = table(after, ()).rows
        assert rows is not None
        assert ledger.count_moved_rows("ward", rows) == 1
    with Ledger.open(ledger_url) as ledger:
        spend(ledger, table(before, ("2024",)), "third")  # put back
        spend(ledger, table({2: "2023", 3: "2024"}, ("2024",)), "fourth")  # left out
        spend(ledger, table({**before, 4: "2024"}, ("2024",)), "fifth")
        # A party's answers tell nothing of it: its owner is told (`moved`).
        ledger.register(table(after, ("2024",)), among=False)
        assert messages(ledger) == []


def test_a_table_without_blocks_is_charged_to_all_of_them(ledger_url: str) -> None:
    records = {1: "2023", 2: "2024"}
    with Ledger.open(ledger_url) as ledger:
        spend(ledger, table(records, ("2023",)), "first")
        plain = replace(table(records, (), "other"), fingerprint="sha256:without")
        assert plain.rows is not None
        plain.rows[:, 2] = 0
        spend(ledger, plain, "second")
        assert {each: spent(ledger, each) for each in ("2023", "2024", "2025")} == {
            "2023": 2,
            "2024": 1,
            "2025": 1,
        }


def test_what_names_no_blocks_is_refused() -> None:
    assert parse_blocks(("b", "a")) == ("a", "b")
    wrong = defaultdict(lambda: r"Expected block names of 1 to 100 characters")
    wrong[("a", "b", "a")] = "each block once, got 'a' twice"
    wrong[tuple(f"{each}" for each in range(10**5))] = (
        f"at most {MAX_BLOCKS} .* names no blocks reads"
    )
    for names in [*wrong, ("",), ("a\n",), ("x" * 101,)]:
        with pytest.raises(ValueError, match=wrong[names]):
            an_entry(1, blocks=names)
    facts = {**an_entry().facts, "unit": "party"}
    with pytest.raises(ValueError, match="unit record with blocks, got party"):
        an_entry(1, blocks=("a",), facts=facts)
