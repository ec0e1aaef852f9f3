"""A server refuses what is out of order, and ends no round with a wrong sum."""

import numpy as np
import pytest
from sums_expected import expected_sum

from parley.secure_agg.edges import SharedEdgeWork
from parley.secure_agg.interface import (
    DropoutPolicy,
    KeyExchange,
    LocalProtocolError,
    RemoteProtocolError,
    TooFewSurvivors,
)


def test_the_server_refuses_what_is_out_of_order_and_goes_on(drill):
    d = drill.build()
    advert = d.parties[0].advertise()
    d.server.on_advertise(advert)
    with pytest.raises(RemoteProtocolError, match="Expected one Advertise of party 0, got two"):
        d.server.on_advertise(advert)
    with pytest.raises(TooFewSurvivors, match="Expected >= 3 parties, got 1"):
        d.server.roster()
    with pytest.raises(LocalProtocolError, match="JOINING"):
        d.server.plan(1, dimension=6, context=d.context)
    drill.rostered(drill.advertised(d, range(1, 5)))
    shares = d.parties[0].prepare(1)
    d.server.on_shares(shares)
    with pytest.raises(RemoteProtocolError, match="Expected one Shares of party 0, got two"):
        d.server.on_shares(shares)
    with pytest.raises(
        TooFewSurvivors, match=r"Expected >= 3 participants.* got 0 of the \d+ parties left"
    ):
        d.server.plan(1, dimension=6, context=d.context)
    for i in range(1, 5):
        d.server.on_shares(d.parties[i].prepare(1))
    drill.delivered(d)
    vectors = {i: drill.vector(d, i, plan) for i, plan in drill.plan(d).items()}
    d.server.on_vector(vectors[0])
    for bad in (vectors[0], bytes(vectors[1])[:-4], b"", b"garbage" * 10):
        with pytest.raises(RemoteProtocolError):
            d.server.on_vector(bad)
    for i in range(1, 5):
        d.server.on_vector(vectors[i])
    listed = d.server.close()
    with pytest.raises(LocalProtocolError, match="Expected to finish while UNMASKING"):
        d.server.finish()
    confirms = {i: p.on_survivors(listed) for i, p in d.parties.items()}
    for i, confirm in confirms.items():
        with pytest.raises(RemoteProtocolError):
            d.server.on_confirm(confirm[:-16])
        d.server.on_confirm(confirm)
        with pytest.raises(RemoteProtocolError, match="got two"):
            d.server.on_confirm(confirms[i])
    for i, message in d.server.confirmations().items():
        reveal = d.parties[i].on_confirmations(message)
        with pytest.raises(RemoteProtocolError):
            d.server.on_reveal(reveal[:-32])
        d.server.on_reveal(reveal)
    assert np.array_equal(d.server.finish(), expected_sum(d))


def test_a_dropout_during_set_up_and_one_during_sharing_do_not_stop_the_run(drill):
    d = drill.rostered(drill.advertised(drill.build(7), range(6)))  # party 6 never advertises
    for i in range(5):  # party 5 never shares
        d.server.on_shares(d.parties[i].prepare(1))
    drill.delivered(d)
    plans = drill.plan(d)
    assert sorted(plans) == [0, 1, 2, 3, 4]
    assert np.array_equal(drill.summed(d, plans), expected_sum(d, without=[5, 6]))


def test_parties_that_share_work_send_the_same_bytes_as_parties_alone(drill):
    options = {"key_exchange": KeyExchange.X25519}  # encapsulation takes no seed
    alone = drill.joined(drill.build(**options))
    together = drill.joined(drill.build(work=SharedEdgeWork(), **options))
    for number in (1, 2):
        ours, _ = drill.masked(alone, number)
        theirs, _ = drill.masked(together, number)
        assert {i: bytes(m) for i, m in ours.items()} == {i: bytes(m) for i, m in theirs.items()}


def test_garbage_reveals_are_worked_around_or_end_the_round(drill):
    d = drill.joined(drill.build(9))
    confirmations = drill.confirmed(d, absent=[0])
    for i, message in confirmations.items():
        reveal = bytearray(d.parties[i].on_confirmations(message))
        if i == 1:  # a wrong self seed: its shares are used instead
            reveal[18] ^= 1
        if i == 2:  # garbage shares
            reveal[18 + 32 + 2 :] = bytes(len(reveal) - 18 - 32 - 2 - 0)
        if i in (1, 2):
            with pytest.raises(RemoteProtocolError, match=f"party {i} committed|from party {i}"):
                d.server.on_reveal(bytes(reveal))
            continue  # as if it were silent: its secrets are rebuilt from the others' shares
        d.server.on_reveal(bytes(reveal))
    assert np.array_equal(d.server.finish(), expected_sum(d, without=[0]))


def test_an_optimistic_round_with_a_missing_vector_gives_nothing(drill):
    d = drill.joined(drill.build(dropouts=DropoutPolicy.OPTIMISTIC, confirm_survivors=False))
    plans = drill.planned(d)
    drill.sent(d, plans, absent=[4])
    with pytest.raises(TooFewSurvivors, match="all 5 vectors"):
        d.server.finish()
    drill.sent(d, drill.plan(d, 2, [0, 1, 2, 3]))
    assert np.array_equal(d.server.finish(), expected_sum(d, without=[4]))
