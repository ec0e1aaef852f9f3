"""The state machines: what may follow what, what is kept, and what is erased."""

import gc
import pickle
import re
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_expected import expected_sum

from parley.secure_agg.interface import (
    DropoutPolicy,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from parley.secure_agg.open_sum import ServerPhase
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.state import MaskingState, Phase


def test_a_round_gives_the_sum_and_leaves_everyone_idle(drill):
    d = drill.joined(drill.build())
    for number in (1, 2, 7):
        assert np.array_equal(drill.finished(d, number), expected_sum(d))
        assert all(p.state.phase is Phase.IDLE for p in d.parties.values())
        assert d.server.phase is ServerPhase.READY


def test_a_party_lost_at_every_stage_is_recovered(drill):
    d = drill.joined(drill.build(7))
    total = drill.finished(d, absent=[2], silent=[4])
    assert np.array_equal(total, expected_sum(d, without=[2]))
    assert np.array_equal(drill.finished(d, 2), expected_sum(d))  # both are back


def test_a_party_resumes_from_its_bytes_at_every_step(drill):
    def restart(d):
        for i, party in d.parties.items():
            state = MaskingState.from_bytes(party.state.to_bytes())
            assert state.to_bytes() == party.state.to_bytes()
            d.parties[i] = Party(
                run=d.run, policy=d.policy, index=i, identity=d.private[i], entropy=d.entropy,
                state=state,
            )  # fmt: skip

    d = drill.build()
    restart(d)
    for party in d.parties.values():
        d.server.on_advertise(party.advertise())
    restart(d)
    drill.rostered(d)
    restart(d)
    for party in d.parties.values():
        d.server.on_shares(party.prepare(1))
    restart(d)
    drill.delivered(d)
    restart(d)
    plans = d.server.plan(1, dimension=6, context=d.context)
    restart(d)
    for i, plan in plans.items():
        d.server.on_vector(d.parties[i].on_plan(plan, d.vectors[i], context=d.context))
    listed = d.server.close()
    restart(d)
    for party in d.parties.values():
        d.server.on_confirm(party.on_survivors(listed))
    restart(d)
    for i, message in d.server.confirmations().items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    assert np.array_equal(d.server.finish(), expected_sum(d))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400), cut=st.integers(0, 4000), flip=st.integers(0, 10**6))
def test_damaged_state_is_refused(data, cut, flip, state_bytes):
    for damaged in (data, state_bytes[: cut % len(state_bytes)], state_bytes + b"\x00"):
        with pytest.raises(ProtocolError):
            MaskingState.from_bytes(damaged)
    edited = bytearray(state_bytes)
    edited[flip % len(edited)] ^= 0xFF
    with suppress(ProtocolError):  # or a state that differs in a secret: nothing else
        assert MaskingState.from_bytes(bytes(edited)).to_bytes() == bytes(edited)


@pytest.fixture(scope="module")
def state_bytes():
    from types import SimpleNamespace

    from parley.secure_agg.parameters import RunParameters

    run = RunParameters.choose(parties=4, min_survivors=3, run_id=b"r" * 16, corrupt=0)
    state = MaskingState(run=run, index=1, phase=Phase.IDLE, near=[0, 2], chains=[b"x" * 32] * 2)
    return SimpleNamespace(data=state.to_bytes()).data


_CALLS = ("advertise", "roster", "plan", "survivors", "confirmations")


_ALLOWED = {
    Phase.NEW: {"advertise"},
    Phase.ADVERTISED: {"roster"},
    Phase.PAIRING: set(),
    Phase.IDLE: {"plan"},
    Phase.MASKED: {"plan", "survivors"},
    Phase.CONFIRMED: {"plan", "confirmations"},
}


@pytest.mark.parametrize("phase", list(_ALLOWED))
@pytest.mark.parametrize("call", _CALLS)
def test_what_the_table_does_not_allow_is_refused_and_changes_nothing(drill, phase, call):
    if call in _ALLOWED[phase]:
        return
    d = drill.build()
    donor = drill.build(seed=b"donor")
    messages = {"roster": None, "plan": None, "survivors": None, "confirmations": None}
    drill.joined(donor)
    messages["plan"] = drill.planned(donor)[0]
    party = d.parties[0]
    if phase >= Phase.ADVERTISED:
        for other in d.parties.values():
            d.server.on_advertise(other.advertise())
        rosters = d.server.roster()
        messages["roster"] = rosters[0]
    else:
        messages["roster"] = b""
    if phase >= Phase.PAIRING:
        for i, message in rosters.items():
            d.server.on_encapsulated(d.parties[i].on_roster(message))
    if phase is Phase.IDLE:
        drill.delivered(d)
    if phase >= Phase.MASKED:
        plans = drill.planned(d)
        for i, plan in plans.items():
            d.server.on_vector(d.parties[i].on_plan(plan, d.vectors[i], context=d.context))
        messages["survivors"] = d.server.close()
    if phase is Phase.CONFIRMED:
        for other in d.parties.values():
            d.server.on_confirm(other.on_survivors(messages["survivors"]))
    before = party.state.to_bytes()
    calls = {
        "advertise": party.advertise,
        "roster": lambda: party.on_roster(messages["roster"]),
        "plan": lambda: party.on_plan(messages["plan"], d.vectors[0], context=d.context),
        "survivors": lambda: party.on_survivors(messages["survivors"] or b""),
        "confirmations": lambda: party.on_confirmations(b""),
    }
    error = LocalProtocolError if call == "advertise" else RemoteProtocolError
    with pytest.raises(error, match=phase.name):
        calls[call]()
    assert party.state.to_bytes() == before


def test_preparing_before_joining_or_in_optimistic_mode_is_refused(drill):
    with pytest.raises(LocalProtocolError, match="once joined, got NEW"):
        drill.build().parties[0].prepare(1)
    d = drill.joined(drill.build(dropouts=DropoutPolicy.OPTIMISTIC, confirm_survivors=False))
    with pytest.raises(LocalProtocolError, match="optimistic"):
        d.parties[0].prepare(1)


def test_a_round_can_be_prepared_while_the_one_before_is_open(drill):
    d = drill.joined(drill.build())
    _, listed = drill.masked(d, 1)
    for party in d.parties.values():  # travels with the vector
        d.server.on_shares(party.prepare(2), number=2)
    for party in d.parties.values():
        d.server.on_confirm(party.on_survivors(listed))
    for i, message in d.server.confirmations().items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    assert np.array_equal(d.server.finish(), expected_sum(d))
    plans = d.server.plan(2, dimension=6, context=d.context)
    assert np.array_equal(drill.summed(d, plans), expected_sum(d))


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
    for i, message in confirmations.items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    d.server.finish()
    gc.collect()
    for i, mine in secrets.items():
        kept = d.parties[i].state.to_bytes()
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


def test_a_new_plan_ends_an_open_round_for_good(drill):
    d = drill.joined(drill.build())
    _, listed = drill.masked(d, 1)
    plans = drill.planned(d, 2)
    d.parties[0].on_plan(plans[0], d.vectors[0], context=d.context)
    with pytest.raises(RemoteProtocolError, match="Expected round 2, got 1"):
        d.parties[0].on_survivors(listed)


def test_an_abandoned_round_is_not_answered(drill):
    d = drill.joined(drill.build())
    _, listed = drill.masked(d)
    d.parties[0].abandon()
    with pytest.raises(RemoteProtocolError, match="while IDLE"):
        d.parties[0].on_survivors(listed)


def test_no_party_can_be_pickled_and_reprs_hold_no_secret(drill):
    d = drill.joined(drill.build())
    drill.masked(d)
    for thing in (d.parties[0], d.parties[0].state):
        with pytest.raises(
            TypeError, match=re.escape("Expected MaskingState.to_bytes, got pickle")
        ):
            pickle.dumps(thing)
        assert len(repr(thing)) < 60
