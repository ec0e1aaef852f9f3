"""The state machines: what may follow what, what is kept, and what is erased."""

import gc
import pickle
import re
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.secure_agg.edges import SharedEdgeWork
from parley.secure_agg.interface import (
    DropoutPolicy,
    KeyExchange,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    TooFewSurvivors,
)
from parley.secure_agg.open_sum import ServerPhase
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.state import MaskingState, Phase


def _expected(d, absent=()):
    rows = [i for i in d.parties if i not in absent]
    return np.add.reduce(d.vectors[rows], axis=0, dtype=d.vectors.dtype)


def test_a_round_gives_the_sum_and_leaves_everyone_idle(drill):
    d = drill.joined(drill.build())
    for number in (1, 2, 7):
        assert np.array_equal(drill.finished(d, number), _expected(d))
        assert all(p.state.phase is Phase.IDLE for p in d.parties.values())
        assert d.server.phase is ServerPhase.READY


def test_a_party_lost_at_every_stage_is_recovered(drill):
    d = drill.joined(drill.build(7))
    total = drill.finished(d, absent=[2], silent=[4])
    assert np.array_equal(total, _expected(d, absent=[2]))
    assert np.array_equal(drill.finished(d, 2), _expected(d))  # both are back


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
    assert np.array_equal(d.server.finish(), _expected(d))


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
    assert np.array_equal(d.server.finish(), _expected(d))
    plans = d.server.plan(2, dimension=6, context=d.context)
    for i, plan in plans.items():
        d.server.on_vector(d.parties[i].on_plan(plan, d.vectors[i], context=d.context))
    listed = d.server.close()
    for party in d.parties.values():
        d.server.on_confirm(party.on_survivors(listed))
    for i, message in d.server.confirmations().items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    assert np.array_equal(d.server.finish(), _expected(d))


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
    for i in range(1, 5):
        d.server.on_advertise(d.parties[i].advertise())
    drill.rostered(d)
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
    plans = d.server.plan(1, dimension=6, context=d.context)
    vectors = {i: d.parties[i].on_plan(p, d.vectors[i], context=d.context) for i, p in
               plans.items()}  # fmt: skip
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
    assert np.array_equal(d.server.finish(), _expected(d))


def test_a_dropout_during_set_up_and_one_during_sharing_do_not_stop_the_run(drill):
    d = drill.build(7)
    for i in range(6):  # party 6 never advertises
        d.server.on_advertise(d.parties[i].advertise())
    drill.rostered(d)
    for i in range(5):  # party 5 never shares
        d.server.on_shares(d.parties[i].prepare(1))
    drill.delivered(d)
    plans = d.server.plan(1, dimension=6, context=d.context)
    assert sorted(plans) == [0, 1, 2, 3, 4]
    for i, plan in plans.items():
        d.server.on_vector(d.parties[i].on_plan(plan, d.vectors[i], context=d.context))
    listed = d.server.close()
    for i in plans:
        d.server.on_confirm(d.parties[i].on_survivors(listed))
    for i, message in d.server.confirmations().items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    assert np.array_equal(d.server.finish(), _expected(d, absent=[5, 6]))


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
    assert np.array_equal(d.server.finish(), _expected(d, absent=[0]))


def test_too_few_shares_of_a_lost_party_end_the_round_without_a_sum(drill):
    d = drill.joined(drill.build())
    confirmations = drill.confirmed(d)
    for i in (0, 1):
        d.server.on_reveal(d.parties[i].on_confirmations(confirmations[i]))
    with pytest.raises(TooFewSurvivors, match="true shares"):
        d.server.finish()
    assert d.server._sum is None
    assert d.server.phase is ServerPhase.READY
    for party in d.parties.values():
        party.abandon()
    assert np.array_equal(drill.finished(d, 2), _expected(d))


def test_the_semi_honest_mode_takes_two_stages(drill):
    d = drill.joined(drill.build(confirm_survivors=False))
    messages, listed = drill.masked(d, absent=[3])
    for i in messages:
        d.server.on_reveal(d.parties[i].on_survivors(listed))
    assert np.array_equal(d.server.finish(), _expected(d, absent=[3]))


def test_an_optimistic_round_with_a_missing_vector_gives_nothing(drill):
    d = drill.joined(drill.build(dropouts=DropoutPolicy.OPTIMISTIC, confirm_survivors=False))
    plans = drill.planned(d)
    for i in (0, 1, 2, 3):
        d.server.on_vector(d.parties[i].on_plan(plans[i], d.vectors[i], context=d.context))
    with pytest.raises(TooFewSurvivors, match="all 5 vectors"):
        d.server.finish()
    plans = d.server.plan(2, dimension=6, context=d.context, participants=[0, 1, 2, 3])
    for i, plan in plans.items():
        d.server.on_vector(d.parties[i].on_plan(plan, d.vectors[i], context=d.context))
    assert np.array_equal(d.server.finish(), _expected(d, absent=[4]))
