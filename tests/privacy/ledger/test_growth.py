"""What a ledger holds in memory of a run with many rounds."""

from __future__ import annotations

from dataclasses import replace

from ledgers import ADULT, an_entry

from parley.privacy.accounting.privacy_events import Pure
from parley.privacy.ledger.ledger import Ledger

ROUNDS = 300


def test_the_entries_of_a_run_share_what_is_equal(tmp_path):
    # A party lists its run's entries every round, and holds them for the next one.
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.register(replace(ADULT, epsilon=float(ROUNDS + 1)))
        for index in range(1, ROUNDS + 1):
            held = ledger.reserve([an_entry(index, event=Pure(epsilon=1.0))])
            ledger.commit([each.id for each in held], outcome={"answered": True})
            entries = [each.entry for each in ledger.list_entries("run-1")]
    assert len(entries) == ROUNDS
    for part in ("facts", "event", "run_id", "dataset", "party"):
        assert len({id(getattr(entry, part)) for entry in entries}) == 1, part
