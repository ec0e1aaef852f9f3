"""What a session has on the disk, and when: charges before answers, answers before they are let go.

None of these sessions has a seed: an answer that comes again was kept, not made anew.
"""

import os
import signal
import subprocess
import sys

import disk
import pytest
import query_parties

import parley
from parley.client.data.schema import Schema
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerCorrupt
from parley.server.rounds.cohort import PartyFailed

SCHEMA = Schema.from_toml(query_parties.SCHEMA)
PARTIES = [query_parties.rows_of(place) for place in range(4)]


@pytest.fixture
def begin(opened, tmp_path):
    def make(**settings):
        if settings:
            return parley.Session(PARTIES, **settings)
        return opened(PARTIES, schema=SCHEMA, epsilon=10.0, seed=None, out=tmp_path / "s")

    return make


def asked(session, count):
    return [session.sum("age", epsilon=0.01).value for _ in range(count)]


def test_an_answer_that_was_committed_and_not_written_comes_back_from_the_ledger(begin, tmp_path):
    with begin() as session:
        before = asked(session, 5)
    path = tmp_path / "s" / "answers.jsonl"
    whole = path.read_bytes()
    fourth = whole.rstrip().rindex(b"\n") + 1
    for kept in (fourth, fourth + 20):  # a kill may leave a part of a line
        path.write_bytes(whole[:kept])
        with begin(resume=tmp_path / "s") as again:
            assert path.read_bytes() == whole
            assert asked(again, 5) == before
            assert again.remaining == pytest.approx(9.95)
    with begin(resume=tmp_path / "s") as again:
        assert asked(again, 5) == before
        assert asked(again, 1) not in ([each] for each in before)


def test_answers_that_neither_disk_nor_ledger_has_are_missed_and_nothing_is_written(
    begin, tmp_path
):
    with begin() as session:
        asked(session, 3)
    path = tmp_path / "s" / "answers.jsonl"
    cut = path.read_bytes()[: path.read_bytes().index(b"\n") + 1]
    path.write_bytes(cut)
    with pytest.raises(LedgerCorrupt, match=r"answers\.jsonl was changed"):
        begin(resume=tmp_path / "s")
    assert path.read_bytes() == cut


@pytest.mark.parametrize("trusting", [True, False])
def test_a_charge_is_on_the_disk_before_anyone_is_asked_and_an_answer_before_it_is_given(
    begin, monkeypatch, trusting
):
    events = []
    disk.note_commits(monkeypatch, events)
    session = begin()
    own, fsync = session._session, os.fsync

    def noted(plan, queries, cohort_of=own.build_cohort):
        events.append("ask")
        return cohort_of(plan, queries)

    def synced(file):
        events.append(os.readlink(f"/proc/self/fd/{file}").rsplit("/", 1)[1])
        fsync(file)

    own.is_server_trusted, own.build_cohort = trusting, noted
    monkeypatch.setattr(os, "fsync", synced)
    del events[:]
    for _ in range(3):
        asked(session, 1)
        events.append("given")
    assert events == ["durable", "ask", "durable", "answers.jsonl", "given"] * 3


def test_the_charge_of_a_release_that_failed_is_on_the_disk_before_anyone_sees_it(
    begin, monkeypatch
):
    events = []
    disk.note_commits(monkeypatch, events)
    session = begin()

    def fail(*_, **__):
        events.append("fail")
        raise PartyFailed("nothing it may release")

    session._session.build_cohort = fail
    del events[:]
    with pytest.raises(PartyFailed):
        asked(session, 1)
    assert events == ["durable", "fail"]
    assert session.remaining == pytest.approx(9.99)


CHILD = """
import sys
sys.path[:0] = sys.argv[2:]
from test_session_durability import PARTIES, SCHEMA, asked
import parley
with parley.Session(PARTIES, schema=SCHEMA, epsilon=10.0, out=sys.argv[1]) as session:
    while True:
        print(asked(session, 1)[0], flush=True)
"""


def test_a_session_that_was_killed_goes_on_with_every_answer_it_gave(begin, tmp_path):
    places = [os.path.dirname(each) for each in (__file__, disk.__file__)]
    command = [sys.executable, "-c", CHILD, str(tmp_path / "s"), *places]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        shown = [float(child.stdout.readline()) for _ in range(9)]
        child.send_signal(signal.SIGKILL)
        shown += map(float, child.stdout.read().splitlines())
    with begin(resume=tmp_path / "s") as again:
        assert asked(again, len(shown)) == shown
    with Ledger.open(tmp_path / "s" / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        (totals,) = ledger.list_accounts()
        assert totals.spent.releases - len(shown) in (0, 1)  # killed within one
