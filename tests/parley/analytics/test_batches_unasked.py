"""What was planned in a batch, and not asked: no message to a party, no charge anywhere."""

import pytest
from query_parties import charged, make_parties, open_session

from parley.client.queries.base import QueryError
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger_errors import BudgetExceeded


@pytest.fixture
def asked(tmp_path):
    """A session of real parties that counts the messages which leave it, from now on."""
    made = make_parties(tmp_path / "d")
    session = open_session(made, tmp_path / "s")
    told, transport = [], made[0]
    exchange = transport.exchange

    def counted(*args, **kwargs):
        told.append(args)
        return exchange(*args, **kwargs)

    transport.exchange = counted
    return made, session, told


def nothing_happened(made, session, told):
    assert told == []
    assert session.answers == ()
    assert session.remaining == 1.0
    assert charged(made, Unit.RECORD) == [None] * 3
    assert not (session.folder / "answers.jsonl").exists()


def filled(batch):
    with batch as b:
        b.histogram("sex")
        b.mean("age")
        assert "nothing was charged" in b.plan()
        b.mean("sex")  # has no range: refused where the batch is left


def interrupted(batch):
    with batch as b:
        b.histogram("sex")
        b.plan()
        raise InterruptedError


def test_a_batch_with_a_query_that_cannot_be_asked_leaves_no_trace(asked):
    made, session, told = asked
    with pytest.raises(ValueError, match="Expected a column of numbers"):
        filled(session.batch(epsilon=0.3))
    nothing_happened(made, session, told)
    with pytest.raises(InterruptedError):
        interrupted(session.batch(epsilon=0.3))
    nothing_happened(made, session, told)
    with pytest.raises(BudgetExceeded), session.batch(epsilon=1.5) as b:
        b.histogram("sex")
    nothing_happened(made, session, told)
    session.close()


def test_a_batch_that_was_never_left_is_told_at_the_end_and_was_never_asked(asked):
    made, session, told = asked
    batch = session.batch(epsilon=0.3)
    later = batch.histogram("sex")
    assert "expected error" in batch.plan()
    with pytest.raises(QueryError, match="histogram sex has no answer yet"):
        _ = later.table
    nothing_happened(made, session, told)
    with pytest.raises(QueryError, match="got one with 1 open queries"):
        session.close()
    assert told == []
    assert charged(made, Unit.RECORD) == [None] * 3


def test_messages_are_counted(asked):
    made, session, told = asked
    with session.batch(epsilon=0.25) as b:
        b.histogram("sex")
    assert told
    assert charged(made, Unit.RECORD) == [0.25] * 3
    session.close()
