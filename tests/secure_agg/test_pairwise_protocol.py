"""The state machines: what may follow what, what is kept, and what is erased."""

import gc
import pickle
import re
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_expected import expected_sum

from parley.secure_agg import primitives
from parley.secure_agg.interface import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    TooFewSurvivors,
)
from parley.secure_agg.pair_keys import CachedPairKeyComputer
from parley.secure_agg.party_state import MaskingState, PartyPhase
from parley.secure_agg.protocol_parameters import RunParameters
from parley.secure_agg.server_round import ServerPhase
from parley.secure_agg.state_encoding import decode_state, encode_state


def test_a_party_resumes_from_its_bytes_at_every_step(drill):
    def restart(d):
        for i, party in d.parties.items():
            state = decode_state(encode_state(party.state))
            assert encode_state(state) == encode_state(party.state)
            d.parties[i] = d.party(i, state=state)

    d = drill.build()
    for step in (drill.advertised, drill.rostered, drill.prepared, drill.delivered):
        restart(d)
        step(d)
    restart(d)
    drill.sent(d, drill.plan(d))
    restart(d)
    confirmations = drill.signed(d, d.server.close())
    restart(d)
    assert np.array_equal(drill.revealed(d, confirmations), expected_sum(d))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400), cut=st.integers(0, 4000), flip=st.integers(0, 10**6))
def test_damaged_state_is_refused(data, cut, flip, state_bytes):
    for damaged in (data, state_bytes[: cut % len(state_bytes)], state_bytes + b"\x00"):
        with pytest.raises(ProtocolError):
            decode_state(damaged)
    edited = bytearray(state_bytes)
    edited[flip % len(edited)] ^= 0xFF
    with suppress(ProtocolError):  # or a state that differs in a secret: nothing else
        assert encode_state(decode_state(bytes(edited))) == bytes(edited)


@pytest.fixture(scope="module")
def state_bytes():
    run = RunParameters.choose(parties=4, min_survivors=3, run_id=b"r" * 16, corrupt=0)
    state = MaskingState(
        run=run, index=1, phase=PartyPhase.IDLE, neighbours=[0, 2], chains=[b"x" * 32] * 2
    )
    return encode_state(state)


_ALLOWED = {
    PartyPhase.NEW: {"advertise"},
    PartyPhase.ADVERTISED: {"roster"},
    PartyPhase.PAIRING: set(),
    PartyPhase.IDLE: {"plan"},
    PartyPhase.MASKED: {"plan", "survivors"},
    PartyPhase.CONFIRMED: {"plan", "confirmations"},
}


@pytest.mark.parametrize("phase", list(_ALLOWED))
def test_what_the_table_does_not_allow_is_refused_and_changes_nothing(drill, phase):
    d, donor = drill.build(), drill.joined(drill.build(seed=b"donor"))
    party, plan = d.parties[0], drill.planned(donor)[0]
    roster = listed = b""
    if phase >= PartyPhase.ADVERTISED:
        roster = drill.advertised(d).server.build_rosters()[0]
    if phase >= PartyPhase.PAIRING:
        d.server.phase = ServerPhase.JOINING
        drill.rostered(d)
    if phase is PartyPhase.IDLE:
        drill.delivered(d)
    if phase >= PartyPhase.MASKED:
        plans = drill.planned(d)
        plan = plans[0]
        drill.sent(d, plans)
        listed = d.server.close()
    if phase is PartyPhase.CONFIRMED:
        drill.signed(d, listed)
    before = encode_state(party.state)
    calls = {
        "advertise": party.advertise,
        "roster": lambda: party.handle_roster(roster),
        "plan": lambda: drill.vector(d, 0, plan),
        "survivors": lambda: party.handle_survivors(listed),
        "confirmations": lambda: party.handle_confirmations(b""),
    }
    for call in calls.keys() - _ALLOWED[phase]:
        error = LocalProtocolError if call == "advertise" else RemoteProtocolError
        with pytest.raises(error, match=phase.name):
            calls[call]()
        assert encode_state(party.state) == before


def test_preparing_before_joining_is_refused(drill):
    with pytest.raises(LocalProtocolError, match="after joining, got NEW"):
        drill.build().parties[0].prepare(1)


def test_a_round_can_be_prepared_while_the_one_before_is_open(drill):
    d = drill.joined(drill.build())
    _, listed = drill.masked(d, 1)
    drill.prepared(d, 2)  # travels with the vector
    assert np.array_equal(drill.revealed(d, drill.signed(d, listed)), expected_sum(d))
    assert np.array_equal(drill.summed(d, drill.plan(d, 2)), expected_sum(d))


def test_a_round_that_the_run_cannot_reach_is_refused_before_any_work(drill):
    d = drill.joined(drill.build(rounds=30))
    for number in (0, 2, 31):  # before the ciphertexts
        with pytest.raises(RemoteProtocolError, match="Expected round 1 to prepare, once"):
            d.parties[0].prepare(number)
    d.parties[0].prepare(1)
    with pytest.raises(RemoteProtocolError, match="Expected round 1 to prepare, once"):
        d.parties[0].prepare(1)  # two messages would be sealed under one key and nonce
    drill.delivered(d)
    for number in (0, 1, 31, 2**32 - 1):
        with pytest.raises(RemoteProtocolError, match="Expected a round from 2"):
            d.parties[0].prepare(number)
    d.parties[0].prepare(20)
    with pytest.raises(RemoteProtocolError, match="Expected a round from 21"):
        d.parties[0].prepare(20)


def _everything_secret(party):
    """All 32-byte secrets that a party holds now."""
    state, secrets = party.state, set()
    for holder in [*state.prepared.values(), *([state.current] if state.current else [])]:
        secrets |= {holder.seed, *holder.pair_keys, *holder.envelope_keys}
    return {s for s in secrets if s} | set(state.chains) | {state.private_key} - {b""}


@pytest.mark.parametrize("absent", [(), (2,)])
def test_secrets_of_a_round_are_erased_when_it_ends(drill, absent):
    d = drill.joined(drill.build())
    keys_at_roster = {p.state.private_key for p in d.parties.values()}
    assert keys_at_roster == {b""}
    confirmations = drill.confirmed(d, absent=absent)
    secrets = {i: _everything_secret(d.parties[i]) - set(d.parties[i].state.chains) for i in
               confirmations}  # fmt: skip
    assert all(len(s) >= 9 for s in secrets.values())
    drill.revealed(d, confirmations)
    gc.collect()
    for i, mine in secrets.items():
        kept = encode_state(d.parties[i].state)
        assert not any(secret in kept for secret in mine)
        assert not any(secret.hex() in repr(d.parties[i].state.__dict__) for secret in mine)
    assert d.server._sum is None


def test_later_state_does_not_give_an_earlier_round_s_keys(drill):
    d = drill.joined(drill.build())
    first = list(d.parties[0].state.chains)
    drill.finished(d, 1)
    after = d.parties[0].state
    assert not set(first) & set(after.chains)
    assert after.chain_round == 2


def test_an_open_round_that_a_new_plan_ends_or_that_is_abandoned_is_not_answered(drill):
    d = drill.joined(drill.build())
    _, listed = drill.masked(d, 1)
    drill.vector(d, 0, drill.planned(d, 2)[0])
    with pytest.raises(RemoteProtocolError, match="Expected round 2, got 1"):
        d.parties[0].handle_survivors(listed)
    d.parties[1].abort_round()
    with pytest.raises(RemoteProtocolError, match="while IDLE"):
        d.parties[1].handle_survivors(listed)


def test_no_party_can_be_pickled_and_reprs_hold_no_secret(drill):
    d = drill.joined(drill.build())
    drill.masked(d)
    for thing in (d.parties[0], d.parties[0].state):
        with pytest.raises(TypeError, match=re.escape("Expected encode_state, got pickle")):
            pickle.dumps(thing)
        assert len(repr(thing)) < 60


def test_the_server_refuses_what_is_out_of_order_and_goes_on(drill):
    d = drill.build()
    advert = d.parties[0].advertise()
    d.server.handle_advertise(advert)
    with pytest.raises(RemoteProtocolError, match="Expected one Advertise of party 0, got two"):
        d.server.handle_advertise(advert)
    with pytest.raises(TooFewSurvivors, match="Expected >= 3 parties, got 1"):
        d.server.build_rosters()
    with pytest.raises(LocalProtocolError, match="JOINING"):
        d.server.plan(1, dimension=6, context=d.context)
    drill.rostered(drill.advertised(d, range(1, 5)))
    shares = d.parties[0].prepare(1)
    d.server.handle_shares(shares)
    with pytest.raises(RemoteProtocolError, match="one Shares message from party 0, got two"):
        d.server.handle_shares(shares)
    with pytest.raises(
        TooFewSurvivors, match=r"Expected >= 3 participants.* got 0 of \d+ remaining parties"
    ):
        d.server.plan(1, dimension=6, context=d.context)
    for i in range(1, 5):
        d.server.handle_shares(d.parties[i].prepare(1))
    drill.delivered(d)
    vectors = {i: drill.vector(d, i, plan) for i, plan in drill.plan(d).items()}
    d.server.handle_vector(vectors[0])
    for bad in (vectors[0], bytes(vectors[1])[:-4], b"", b"garbage" * 10):
        with pytest.raises(RemoteProtocolError):
            d.server.handle_vector(bad)
    for i in range(1, 5):
        d.server.handle_vector(vectors[i])
    listed = d.server.close()
    with pytest.raises(LocalProtocolError, match="Expected to finish while UNMASKING"):
        d.server.finish()
    confirms = {i: p.handle_survivors(listed) for i, p in d.parties.items()}
    for i, confirm in confirms.items():
        with pytest.raises(RemoteProtocolError):
            d.server.handle_confirm(confirm[:-16])
        d.server.handle_confirm(confirm)
        with pytest.raises(RemoteProtocolError, match="got two"):
            d.server.handle_confirm(confirms[i])
    for i, message in d.server.build_confirmations().items():
        reveal = d.parties[i].handle_confirmations(message)
        with pytest.raises(RemoteProtocolError):
            d.server.handle_reveal(reveal[:-32])
        d.server.handle_reveal(reveal)
    assert np.array_equal(d.server.finish(), expected_sum(d))


def test_a_dropout_during_set_up_and_one_during_sharing_do_not_stop_the_run(drill):
    d = drill.rostered(drill.advertised(drill.build(7), range(6)))  # party 6 never advertises
    for i in range(5):  # party 5 never shares
        d.server.handle_shares(d.parties[i].prepare(1))
    drill.delivered(d)
    plans = drill.plan(d)
    assert sorted(plans) == [0, 1, 2, 3, 4]
    assert np.array_equal(drill.summed(d, plans), expected_sum(d, without=[5, 6]))


def _replay_encapsulations(monkeypatch):
    """Give the nth encapsulation to a key the same result in every run: it takes no seed."""
    results, calls = {}, Counter()

    def encapsulate(public):
        calls[public] += 1
        place = public, calls[public]
        if place not in results:
            results[place] = primitives.encapsulate(public)
        return results[place]

    monkeypatch.setattr("parley.secure_agg.pair_keys.encapsulate", encapsulate)
    return calls


def test_parties_that_share_work_send_the_same_bytes_as_parties_alone(drill, monkeypatch):
    calls = _replay_encapsulations(monkeypatch)
    alone = drill.joined(drill.build())
    calls.clear()
    together = drill.joined(drill.build(work=CachedPairKeyComputer()))
    for number in (1, 2):
        ours, _ = drill.masked(alone, number)
        theirs, _ = drill.masked(together, number)
        assert {i: bytes(m) for i, m in ours.items()} == {i: bytes(m) for i, m in theirs.items()}


def test_garbage_reveals_are_worked_around_or_end_the_round(drill):
    d = drill.joined(drill.build(9))
    confirmations = drill.confirmed(d, absent=[0])
    for i, message in confirmations.items():
        reveal = bytearray(d.parties[i].handle_confirmations(message))
        if i == 1:  # a wrong self seed: its shares are used instead
            reveal[18] ^= 1
        if i == 2:  # garbage shares
            reveal[18 + 32 + 2 :] = bytes(len(reveal) - 18 - 32 - 2 - 0)
        if i in (1, 2):
            with pytest.raises(RemoteProtocolError, match=f"party {i} committed|of party {i}"):
                d.server.handle_reveal(bytes(reveal))
            continue  # as if it were silent: its secrets are rebuilt from the others' shares
        d.server.handle_reveal(bytes(reveal))
    assert np.array_equal(d.server.finish(), expected_sum(d, without=[0]))
