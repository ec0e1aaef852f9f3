"""What a session has on the disk, and when: charges before answers, answers before they are let go.

None of these sessions has a seed: an answer that comes again was kept, not made anew.
"""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import parley
from parley.client.data.schema import Schema
from parley.privacy.ledger.ledger import Ledger, LedgerCorrupt
from parley.server.queries import folder as session_folder
from parley.server.rounds.cohort import PartyFailed

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
PARTIES = [{"age": np.arange(40.0) + place, "sick": ["yes", "no"] * 20} for place in range(4)]


@pytest.fixture
def begin(tmp_path):
    def make(**settings):
        given = settings or {"schema": SCHEMA, "epsilon": 10.0, "out": tmp_path / "s"}
        opened.append(parley.Session(PARTIES, **given))
        return opened[-1]

    opened = []
    yield make
    for each in opened:
        each.close()


def asked(session, count):
    return [session.sum("age", epsilon=0.01).value for _ in range(count)]


def test_answers_that_the_disk_lost_come_back_from_the_ledger(begin, tmp_path):
    with begin() as session:
        before = asked(session, 5)
    path = tmp_path / "s" / "answers.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[: first + 20] + b"\0" * 300)
    with begin(resume=tmp_path / "s") as again:
        assert path.read_bytes() == whole
        assert asked(again, 5) == before
        assert again.remaining == pytest.approx(9.95)
        assert asked(again, 1) not in ([each] for each in before)


def test_answers_that_neither_disk_nor_ledger_has_are_missed_and_nothing_is_written(
    begin, tmp_path, monkeypatch
):
    monkeypatch.setattr(session_folder, "_MOST_UNSYNCED", 1000)
    with begin() as session:
        asked(session, 14)
        if not session._session.folder.unsynced:  # as long as numbers print: all of it was written
            asked(session, 1)
        assert 1 <= len(session._session.folder.unsynced) < 5
    path = tmp_path / "s" / "answers.jsonl"
    cut = path.read_bytes()[: path.read_bytes().index(b"\n") + 1]
    path.write_bytes(cut)
    with pytest.raises(LedgerCorrupt, match=r"answers\.jsonl was changed"):
        begin(resume=tmp_path / "s")
    assert path.read_bytes() == cut


@pytest.mark.parametrize(("trusting", "level"), [(True, 1), (False, 2)])
def test_a_charge_is_on_the_disk_before_real_parties_are_asked(begin, monkeypatch, trusting, level):
    """SQLite's `synchronous` is 2 where a commit waits for the disk; a simulation's answer does."""
    session = begin()
    own, levels = session._session, []

    def synchronous(*given, ask=own.cohort.ask, **named):
        with own.ledger._place._engine.connect() as connection:
            levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
        return ask(*given, **named)

    monkeypatch.setattr(own.cohort, "trusting", trusting)
    monkeypatch.setattr(own.cohort, "ask", synchronous)
    asked(session, 1)
    own.ledger.head()
    with own.ledger._place._engine.connect() as connection:
        levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
    assert levels == [level, 2]


def test_the_charge_of_a_release_that_failed_is_on_the_disk_before_anyone_sees_it(
    begin, monkeypatch
):
    session, synced = begin(), []

    def fail(*_, **__):
        raise PartyFailed("nothing it may release")

    monkeypatch.setattr(session._session.cohort, "ask", fail)
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")) or fsync(file)
    )
    with pytest.raises(PartyFailed):
        asked(session, 1)
    assert [each.rsplit("/", 1)[1] for each in synced] == ["ledger.sqlite-wal"]
    assert session.remaining == pytest.approx(9.99)


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from test_session_durability import PARTIES, SCHEMA, asked
import parley
with parley.Session(PARTIES, schema=SCHEMA, epsilon=10.0, out=sys.argv[2]) as session:
    while True:
        print(asked(session, 1)[0], flush=True)
"""


def test_a_session_that_was_killed_goes_on_with_every_answer_it_gave(begin, tmp_path):
    command = [sys.executable, "-c", CHILD, os.path.dirname(__file__), str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        shown = [float(child.stdout.readline()) for _ in range(9)]
        child.send_signal(signal.SIGKILL)
        shown += map(float, child.stdout.read().splitlines())
    with begin(resume=tmp_path / "s") as again:
        assert asked(again, len(shown)) == shown
    with Ledger.open(tmp_path / "s" / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        (totals,) = ledger.totals()
        assert totals.spent.releases - len(shown) in (0, 1)  # killed within one
