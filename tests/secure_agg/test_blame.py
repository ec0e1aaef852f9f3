"""One party breaks the protocol: it is named at the entrance, and the others go on without it."""

import numpy as np
import pytest
from sums_expected import expected_sum

from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import Advertise, Confirm, Shares, decode, encode
from parley.secure_agg.primitives import sign
from parley.secure_agg.statements import advertised


def _advert(d, party, key):
    """A key that the party's own identity signs, as a party that lies would."""
    statement = advertised(d.run.fingerprint, d.policy.roster, party, key, bytes(32))
    message = Advertise(
        sender=party, round_number=0, key=key, nonce=bytes(32),
        signature=sign(d.private[party], statement),
    )  # fmt: skip
    return encode(d.run, message)


def test_a_weak_or_copied_key_is_its_senders_alone(drill):
    d = drill.build(7)
    first = d.parties[0].advertise()
    d.server.on_advertise(first)
    copied, own = decode(d.run, first, Advertise).key, d.parties[4].advertise()
    key = decode(d.run, own, Advertise).key
    lists = [bytes(32) + key[32:], b"\x01" + bytes(31) + key[32:], copied]
    lists += [copied[:32] + key[32:], key[:32] + copied[32:]]  # one of the two is enough
    for key in lists:
        with pytest.raises(RemoteProtocolError, match="a new key of party 3"):
            d.server.on_advertise(_advert(d, 3, key))
    d.server.on_advertise(own)
    drill.rostered(drill.advertised(d, (1, 2, 5, 6)))
    del d.parties[3]
    assert np.array_equal(drill.finished(d), expected_sum(d))


def test_one_false_signature_of_the_list_is_left_out_and_the_round_goes_on(drill):
    d = drill.joined(drill.build(7))
    _, listed = drill.masked(d)
    for i, party in d.parties.items():
        confirm = party.on_survivors(listed)
        if i == 2:
            bad = encode(d.run, Confirm(sender=2, round_number=1, signature=bytes(64)))
            with pytest.raises(RemoteProtocolError, match="party 2 to sign the survivors' list"):
                d.server.on_confirm(bad)
        else:
            d.server.on_confirm(confirm)
    total = drill.revealed(d, d.server.confirmations())
    assert np.array_equal(total, expected_sum(d))


def test_shares_for_rounds_that_nobody_asked_for_are_refused_and_block_nobody(drill):
    # Before: two rounds of anybody's choice filled the server's room for shares.
    d = drill.joined(drill.build(7))
    for number in (5, 9, 2):
        with pytest.raises(
            RemoteProtocolError, match=f"party 6 for round 1, got .* round {number}"
        ):
            d.server.on_shares(_shares(d, 6, number))
    for i in range(6):
        d.server.on_shares(d.parties[i].prepare(1))
    plans = drill.plan(d)
    assert sorted(plans) == list(range(6))


def _shares(d, party, number):
    near = len(d.parties[party].state.near)
    entry = 64 if d.run.unpaired(number) else 32
    message = Shares(
        sender=party, round_number=number, commitments=bytes(64), table=bytes(16 + entry * near),
        digests=bytes(32 * near), envelopes=bytes(80 * near),
    )  # fmt: skip
    return encode(d.run, message)


@pytest.mark.parametrize("how", ["no secret", "unopened"])
def test_a_dealer_whose_shares_are_worthless_is_convicted_and_the_next_round_is_whole(drill, how):
    d = drill.joined(drill.build(7, corrupt=1))
    for i, party in d.parties.items():
        shares = party.prepare(1)
        if i == 2:  # commits to another seed than it shared out, or seals garbage
            message = decode(d.run, shares, Shares)
            changed = {**vars(message)}
            if how == "no secret":
                changed["commitments"] = bytes(64)
            else:
                changed["envelopes"] = bytes(len(message.envelopes))
            shares = encode(d.run, Shares(**changed))
        d.server.on_shares(shares)
    drill.delivered(d)
    plans = drill.plan(d)
    with pytest.raises(TooFewSurvivors, match="party 2"):
        drill.summed(d, plans, silent={2})
    assert d.server.blamed == {2}
    for party in d.parties.values():
        party.abandon()
    plans = drill.planned(d, 2)
    assert 2 not in plans
    del d.parties[2]
    assert np.array_equal(drill.summed(d, plans), expected_sum(d))


def test_a_party_that_lost_more_neighbours_than_the_least_degree_takes_no_part(drill):
    from parley.secure_agg.parameters import Policy

    seen = drill.build(9)
    policy = Policy(identities=seen.identities, min_survivors=1, minimum_degree=7, corrupt=0)
    d = drill.joined(drill.build(9, policy=policy))
    plans = drill.planned(d, participants=range(7))  # six neighbours take part
    with pytest.raises(RemoteProtocolError, match="Expected >= 7 participating neighbours, got 6"):
        d.parties[0].on_plan(plans[0], d.vectors[0], context=d.context)
    d = drill.joined(drill.build(9, policy=policy))
    _, listed = drill.masked(d, absent=[7, 8])
    with pytest.raises(TooFewSurvivors, match="Expected >= 7 surviving neighbours, got 6"):
        d.parties[0].on_survivors(listed)
