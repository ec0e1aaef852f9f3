"""Ciphertexts that do not match convict their sender; a false accuser convicts itself."""

import dataclasses

import numpy as np
import pytest
from sums_expected import expected_sum

from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import (
    Ciphertexts,
    Complaint,
    Confirmations,
    Encapsulated,
    Evidence,
    RoundStart,
    decode,
    encode,
)
from parley.secure_agg.party_key_setup import parse_outgoing
from parley.secure_agg.party_state import PartyPhase
from parley.secure_agg.predicted_outcome import pack_mask, unpack_mask
from parley.secure_agg.primitives import derive_kem_public_key, encapsulate
from parley.secure_agg.state_encoding import decode_state, encode_state

ITEM = 1088 + 16
M = 11


# A ciphertext that does not match: implicit rejection gives keys that nobody else has.
def _item(d, sender, receiver):
    return d.server._delivery.pending[receiver][sender]


def _sent_by_another_run(drill, d, sender, receiver):
    other = drill.joined(drill.build(M, seed=b"other", corrupt=2))
    return _item(other, sender, receiver)


def _for_this_key_but_unconfirmed(drill, d, sender, receiver):
    seed = d.parties[receiver].state.kem_seed
    return encapsulate(derive_kem_public_key(seed))[1] + _item(d, sender, receiver)[-16:]


MISMATCHES = {
    "of another pair": lambda drill, d, i, j: _item(d, i, (j + 1) % M),
    "of another sender": lambda drill, d, i, j: _item(d, (i + 1) % M, j),
    "swapped direction": lambda drill, d, i, j: _item(d, j, i),
    "from another run": _sent_by_another_run,
    "replayed tag": _for_this_key_but_unconfirmed,
    "zeros": lambda drill, d, i, j: bytes(ITEM),
    "false tag": lambda drill, d, i, j: _item(d, i, j)[:-16] + bytes(16),
}


def _answered(d):
    """Ciphertexts to everybody; who complained."""
    complained = []
    for i, party in d.parties.items():
        message = d.server.get_ciphertexts(i)
        complaint = party.handle_ciphertexts(message) if message else b""
        if complaint:
            complained.append(d.server.handle_complaint(complaint))
    return complained


def _round(drill, d, number, without):
    """A whole round of those who have not left: who is not in it, and the sum."""
    for party in d.parties.values():
        if number > 1 and party.state.phase is not PartyPhase.LEFT:
            d.server.handle_shares(party.prepare(number), number=number)
    plans = drill.plan(d, number)
    assert set(plans) == set(range(M)) - set(without)
    assert np.array_equal(drill.summed(d, plans), expected_sum(d, without))


def _proved(d, accuser):
    d.server.handle_evidence(d.parties[accuser].prove(*d.server.delivery.certificate))


def _dealt(drill, false=()):
    """Shares of round 1 are with the server, ciphertexts on their way, some (to, of) false ones."""
    d = drill.prepared(drill.joined(drill.build(M, corrupt=2)))
    for receiver, sender in false:
        d.server._delivery.pending[receiver][sender] = bytes(ITEM)
    return d


@pytest.mark.parametrize("how", MISMATCHES)
def test_a_ciphertext_that_does_not_match_convicts_its_sender_and_makes_no_wrong_sum(drill, how):
    # Party 2 sends party 0 something else, and takes part in round 1 as if nothing were.
    d = _dealt(drill)
    d.server._delivery.pending[0][2] = MISMATCHES[how](drill, d, 2, 0)
    plans = drill.plan(d)
    assert _answered(d) == [0]
    assert d.parties[0].state.disputed == [2]
    with pytest.raises(RemoteProtocolError, match="a round without party 2, whose ciphertext"):
        drill.vector(d, 0, plans[0])
    assert (d.server.to_prove, d.server.blamed) == ((), set())  # nothing was confirmed yet
    assert np.array_equal(drill.summed(d, plans, [0]), expected_sum(d, [0]))
    assert d.server.to_prove == (0,)
    _proved(d, 0)
    assert (d.server.to_prove, d.server.blamed) == ((), {2})
    _round(drill, d, 2, without=[0, 2])


def _complaint(d, accuser, *accused):
    near = [j for j in range(M) if j != accuser]
    flags = np.isin(near, accused)
    return encode(d.run, Complaint(sender=accuser, round_number=0, accused=pack_mask(flags)))


def _evidence(d, party, seed):
    return encode(d.run, Evidence(sender=party, round_number=0, seed=seed))


def _paired(drill):
    """After the ciphertexts, all of which match; and the keys that are erased by then."""
    d = _dealt(drill)
    seeds = {i: p.state.kem_seed for i, p in d.parties.items()}
    assert _answered(d) == []
    return d, seeds


def test_a_false_accuser_convicts_itself_by_its_own_key_and_the_accused_comes_back(drill):
    d, seeds = _paired(drill)
    d.server.handle_complaint(_complaint(d, 3, 1))
    _round(drill, d, 1, without=[1, 3])  # one of the two lies
    assert d.server.to_prove == (3,)
    for wrong in (bytes(64), seeds[1]):
        with pytest.raises(
            RemoteProtocolError, match="that party 3 signed, got the seed of another key"
        ):
            d.server.handle_evidence(_evidence(d, 3, wrong))
    d.server.handle_evidence(_evidence(d, 3, seeds[3]))
    assert d.server.blamed == {3}
    _round(drill, d, 2, without=[3])


def test_an_accuser_that_will_not_prove_is_left_out_and_nobody_is_blamed(drill):
    d, _ = _paired(drill)
    d.server.handle_complaint(_complaint(d, 3, 1, 2))
    _round(drill, d, 1, without=[1, 3])  # an accuser shuts out one, whomever it accuses
    d.server.delivery.mark_unproven(3)
    assert (d.server.to_prove, d.server.blamed) == ((), set())
    with pytest.raises(LocalProtocolError, match="a party of an open dispute"):
        d.server.delivery.mark_unproven(1)
    _round(drill, d, 2, without=[3])


@pytest.mark.parametrize(
    ("false", "first", "asked", "blamed", "then"),
    [
        ([(0, 2), (1, 2)], {0, 2}, (0,), {2}, {0, 2}),  # party 1 goes on: whom it accuses is out
        ([(0, 2), (0, 6), (1, 2)], {0, 2}, (0,), {2, 6}, {0, 2, 6}),  # one's evidence decides all
        ([(0, 2), (1, 2), (3, 2)], {2}, (), {2}, {2}),  # more accusers than may lie: none is asked
    ],
)
def test_a_sender_of_false_ciphertexts_shuts_out_one_party_however_many_it_sends_them(
    drill, false, first, asked, blamed, then
):
    d, accusers = _dealt(drill, false), sorted({to for to, _ in false})
    assert _answered(d) == accusers
    _round(drill, d, 1, first)
    assert d.server.to_prove == asked
    for accuser in accusers:
        if accuser in asked:
            _proved(d, accuser)
        else:
            with pytest.raises(RemoteProtocolError, match="a dispute before the first vector"):
                d.parties[accuser].prove(*d.server.delivery.certificate)
    assert d.server.blamed == blamed
    _round(drill, d, 2, then)


def test_a_round_is_given_up_that_has_a_vector_of_whom_the_accusers_convict(drill):
    d = _dealt(drill, [(0, 2), (1, 2), (3, 2)])
    plans = drill.plan(d)
    assert _answered(d) == [0, 1, 3]
    with pytest.raises(TooFewSurvivors, match=r"got one from party 2\. The round ends"):
        drill.summed(d, plans, [0, 1, 3])
    for party in d.parties.values():
        party.abort_round()
    _round(drill, d, 2, without=[2])


def test_who_accuses_more_than_may_lie_is_convicted_itself(drill):
    d, _ = _paired(drill)
    d.server.handle_complaint(_complaint(d, 5, 0, 1, 2))
    assert (d.server.to_prove, d.server.blamed) == ((), {5})
    _round(drill, d, 2, without=[5])


def test_complaints_that_nobody_can_have_are_refused(drill):
    d, _ = _paired(drill)
    d.server.handle_complaint(_complaint(d, 3, 1))
    for bad in (_complaint(d, 3, 1), _complaint(d, 4), _complaint(d, 4, 4)):
        with pytest.raises(RemoteProtocolError, match="complain"):
            d.server.handle_complaint(bad)
    whole = drill.joined(drill.build(M, corrupt=2))
    drill.finished(whole)
    with pytest.raises(RemoteProtocolError, match="whose ciphertexts it received"):
        whole.server.handle_complaint(_complaint(whole, 3, 1))  # long after it used them
    with pytest.raises(RemoteProtocolError, match="nothing to prove"):
        whole.server.handle_evidence(_evidence(whole, 3, bytes(64)))


def test_nothing_is_proved_before_most_parties_have_no_key_left_to_give_away(drill):
    # A lying server feeds everybody false ciphertexts, to collect the keys: it gets none of them.
    d = _dealt(drill)
    plans = drill.plan(d)
    message = bytearray(d.server.get_ciphertexts(0))
    message[18 + 2 + ITEM] ^= 1  # of party 2
    party = d.parties[0]
    assert party.handle_ciphertexts(bytes(message)) != b""
    del d.parties[0]
    drill.delivered(d)
    drill.sent(d, plans, absent=[0])
    drill.signed(d, d.server.close())
    start, survivors, confirmed = d.server.delivery.certificate
    few = _signed_by(d.run, confirmed, range(1, 8))
    one_less = _signed_by(d.run, confirmed, range(1, 7))
    forged = dataclasses.replace(few, signatures=bytes(64) + few.signatures[64:])
    again = dataclasses.replace(few, signatures=few.signatures[64:128] + few.signatures[64:])
    for bad in (one_less, forged, again):
        with pytest.raises(TooFewSurvivors, match="Expected >= 7 parties to confirm"):
            party.prove(start, survivors, encode(d.run, bad))
    elsewhere = dataclasses.replace(decode(d.run, start, RoundStart), context=b"x" * 32)
    with pytest.raises(TooFewSurvivors, match="got 0"):
        party.prove(encode(d.run, elsewhere), survivors, confirmed)
    assert len(party.state.kem_seed) == 64
    assert party.prove(start, survivors, encode(d.run, few))[18:] != b""


def _signed_by(run, confirmations, signers):
    """The Confirmations of some of those who signed."""
    given = decode(run, confirmations, Confirmations)
    whole = np.flatnonzero(unpack_mask(given.signers, run.parties)).tolist()
    pieces = {i: given.signatures[64 * n : 64 * n + 64] for n, i in enumerate(whole)}
    return dataclasses.replace(
        given,
        signers=pack_mask(np.isin(np.arange(run.parties), signers)),
        signatures=b"".join(pieces[i] for i in signers),
    )


def test_a_party_proves_once_before_any_vector_and_has_left_then(drill):
    def disputing():
        d = _dealt(drill)
        message = bytearray(d.server.get_ciphertexts(0))
        message[18 + 2 + 5] ^= 1
        party = d.parties[0]
        with pytest.raises(RemoteProtocolError, match="a dispute before the first vector"):
            party.prove(b"", b"", b"")
        assert party.handle_ciphertexts(bytes(message)) != b""
        return d, party

    d, party = disputing()
    d.parties.pop(0)
    drill.delivered(d)
    plans = drill.plan(d)
    drill.summed(d, plans, [0])
    seed = party.state.kem_seed
    assert party.prove(*d.server.delivery.certificate)[18:] == seed
    state = party.state
    assert (state.phase, state.chains, state.kem_seed, state.prepared) == (
        PartyPhase.LEFT,
        [],
        b"",
        {},
    )
    assert encode_state(decode_state(encode_state(state))) == encode_state(state)
    for call in (
        lambda: party.prove(*d.server.delivery.certificate),
        lambda: party.handle_plan(plans[0], d.vectors[0], context=d.context),
        lambda: party.handle_survivors(b""),
        lambda: party.handle_confirmations(b""),
    ):
        with pytest.raises(RemoteProtocolError, match="LEFT"):
            call()
    with pytest.raises(LocalProtocolError, match="LEFT"):
        party.prepare(2)
    party.abort_round()
    assert party.state.phase is PartyPhase.LEFT

    d, party = disputing()
    for other in list(d.parties.values())[1:]:
        assert other.handle_ciphertexts(d.server.get_ciphertexts(other.state.index)) == b""
    drill.prepared(d, 2)
    plans = drill.plan(d, 2, set(range(M)) - {1})
    party.handle_plan(plans[0], d.vectors[0], context=d.context)  # without the accused, party 1
    assert party.state.kem_seed == b""
    with pytest.raises(RemoteProtocolError, match="a dispute before the first vector"):
        party.prove(b"", b"", b"")


def test_a_complaint_that_was_lost_is_made_again_and_no_ciphertexts_follow_one_that_came(drill):
    d = _dealt(drill)
    message = decode(d.run, d.server.get_ciphertexts(0), Ciphertexts)
    items = message.items[ITEM : 2 * ITEM] + message.items[:ITEM] + message.items[2 * ITEM :]
    swapped = encode(d.run, dataclasses.replace(message, items=items))
    party = d.parties[0]
    lost = party.handle_ciphertexts(swapped)
    assert decode(d.run, lost, Complaint).accused == b"\xc0\x00"
    assert party.state.disputed == [1, 2]
    party.state = decode_state(encode_state(party.state))
    assert party.handle_ciphertexts(d.server.get_ciphertexts(0)) == lost  # what came first stands
    d.server.handle_complaint(lost)
    assert d.server.get_ciphertexts(0) == b""


def test_no_secret_of_a_dispute_is_in_an_error_or_a_repr(drill):
    d = drill.joined(drill.build())
    party = d.parties[0]
    seed = party.state.kem_seed
    texts = [repr(party), repr(party.state), repr(parse_outgoing(party.state.pairing))]
    items = Encapsulated(sender=1, round_number=0, items=bytes(ITEM))
    for call in (
        lambda: party.handle_ciphertexts(encode(d.run, items)),
        lambda: party.prove(b"", b"", b""),
        lambda: party.prepare(9),
    ):
        with pytest.raises(RemoteProtocolError) as caught:
            call()
        texts.append(str(caught.value))
    texts.append(repr(Evidence(sender=0, round_number=0, seed=seed)))
    secrets = [seed, *party.state.pairing.exchanged, *parse_outgoing(party.state.pairing)[0]]
    assert not any(s.hex() in text or repr(s)[2:-1] in text for s in secrets for text in texts)
