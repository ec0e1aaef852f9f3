"""Hybrid pair secrets: both algorithms count; who sends late or wrong is left out by name."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sums_expected import expected_sum

from parley.secure_agg import primitives
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import SERVER, Advertise, Roster, decode, encode
from parley.secure_agg.pair_keys import compute_transcript, derive_direction_keys
from parley.secure_agg.party_state import PartyPhase
from parley.secure_agg.primitives import AlgorithmMissing, sign
from parley.secure_agg.protocol_digests import digest_advertisement
from parley.secure_agg.protocol_parameters import RunParameters
from parley.secure_agg.state_encoding import encode_state

ITEM = 1088 + 16
ONE, OTHER = b"1" * 32, b"2" * 32


# The combiner.
@given(flip=st.integers(0, 255), which=st.integers(0, 2))
def test_every_bit_of_either_secret_and_of_the_place_changes_every_key(flip, which):
    inputs = [ONE, OTHER, b"3" * 32]
    changed = list(inputs)
    edited = bytearray(changed[which])
    edited[flip // 8] ^= 1 << flip % 8
    changed[which] = bytes(edited)
    before, after = derive_direction_keys(*inputs), derive_direction_keys(*changed)
    assert len({*before, *after}) == 8


def test_a_pair_is_named_by_run_roster_indices_and_every_public_key():
    ends = (0, b"a" * 1216), (1, b"b" * 1216)
    names = {compute_transcript(ONE, OTHER, *ends), compute_transcript(OTHER, OTHER, *ends)}
    names |= {
        compute_transcript(ONE, ONE, *ends),
        compute_transcript(ONE, OTHER, ends[0], (2, ends[1][1])),
    }
    names |= {compute_transcript(ONE, OTHER, (0, ends[1][1]), (1, ends[0][1]))}
    for at in (0, 31, 32, 1215):  # X25519's part and ML-KEM's
        key = bytearray(ends[1][1])
        key[at] ^= 1
        names.add(compute_transcript(ONE, OTHER, ends[0], (1, bytes(key))))
    assert len(names) == 9
    assert compute_transcript(ONE, OTHER, *ends) == compute_transcript(ONE, OTHER, *ends[::-1])


def test_what_made_the_pair_secrets_is_erased_once_they_are_whole(drill):
    d = drill.joined(drill.build())
    state = d.parties[0].state
    assert (state.phase, len(state.kem_seed)) == (PartyPhase.PAIRING, 64)
    pairing, seed = state.pairing, state.kem_seed
    drill.delivered(d)
    kept = encode_state(state)
    assert (state.phase, state.kem_seed, state.pairing) == (PartyPhase.IDLE, b"", None)
    assert not any(s in kept for s in [seed, *pairing.exchanged, *pairing.outgoing])
    assert d.server._delivery.pending.keys() == set(d.parties)
    drill.finished(d, 2)
    assert not d.server._delivery.pending  # nor does the server keep what was delivered


@pytest.mark.parametrize("silent", [(), (4,), (4, 5)])
def test_who_drops_in_the_first_round_is_recovered_though_its_neighbour_falls_silent_too(
    drill, silent
):
    # Its table was made before it had its neighbours' ciphertexts; the other half is with vectors.
    d = drill.joined(drill.build(9))
    assert np.array_equal(drill.finished(d, absent=[2, 7], silent=silent), expected_sum(d, [2, 7]))
    assert np.array_equal(drill.finished(d, 2), expected_sum(d))


def test_who_missed_the_first_round_gets_its_ciphertexts_with_the_next(drill):
    d = drill.joined(drill.build(7))
    late = d.parties.pop(3)
    for party in (*d.parties.values(), late):
        d.server.handle_shares(party.prepare(1))
    drill.delivered(d)
    plans = drill.plan(d)
    total = drill.summed(d, {i: plans[i] for i in d.parties})
    assert np.array_equal(total, expected_sum(d))
    assert d.server.get_ciphertexts(0) == b""
    assert len(d.server.get_ciphertexts(3)) == 18 + 1 + 6 * ITEM
    assert late.state.phase is PartyPhase.PAIRING
    d.parties[3] = late
    assert np.array_equal(drill.finished(d, 2), expected_sum(d))


def test_who_never_sent_ciphertexts_is_left_out_and_the_rest_is_summed(drill):
    d = drill.advertised(drill.build(7))
    for i, message in d.server.build_rosters().items():
        answer = d.parties[i].handle_roster(message)
        if i != 5:
            d.server.handle_encapsulated(answer)
    del d.parties[5]
    assert np.array_equal(drill.finished(d), expected_sum(d))
    with pytest.raises(RemoteProtocolError, match="ciphertexts of party 5 once"):
        d.server.handle_encapsulated(answer[:10] + (5).to_bytes(4, "big") + answer[14:])


# What a server or a stranger cannot strip, cut or mix.
def test_a_roster_without_the_ml_kem_keys_is_refused_by_their_name(drill):
    d = drill.advertised(drill.build())
    rosters = d.server.build_rosters()
    roster = decode(d.run, rosters[0], Roster)
    entries = [roster.entries[at : at + 1312] for at in range(0, len(roster.entries), 1312)]
    stripped = b"".join(e[:32] + e[1216:] for e in entries)
    zeroed = b"".join(e[:32] + bytes(1184) + e[1216:] for e in entries)
    for forged, match in (
        (stripped, r"signed keys of x25519\+ml-kem-768, 1312 bytes each"),
        (zeroed, "a repeated one"),
        (entries[0][:40] + b"x" + entries[0][41:] + b"".join(entries[1:]), "got a forged one"),
        (roster.entries[:-1], r"x25519\+ml-kem-768"),
    ):
        message = Roster(sender=SERVER, round_number=0, present=roster.present, entries=forged)
        with pytest.raises(RemoteProtocolError, match=match):
            d.parties[0].handle_roster(encode(d.run, message))
        assert d.parties[0].state.phase is PartyPhase.ADVERTISED


def test_the_names_of_the_algorithms_are_in_what_is_signed(monkeypatch):
    run = RunParameters.choose(parties=5, min_survivors=3, run_id=b"r" * 16)
    known = run.fingerprint
    assert RunParameters.from_bytes(run.to_bytes()) == run
    monkeypatch.setattr("parley.secure_agg.protocol_parameters.SIGNATURE", "ml-dsa-65")
    assert dataclasses.replace(run).fingerprint != known


def test_keys_and_ciphertexts_of_another_length_are_refused_by_name(drill):
    d = drill.joined(drill.build())
    good = d.server.get_ciphertexts(0)
    for bad in (good[:-1], good + b"\x00", good[: 18 + 1 + 1088]):
        with pytest.raises(RemoteProtocolError, match="whole ML-KEM-768 ciphertexts of 1088 bytes"):
            d.parties[0].handle_ciphertexts(bad)
    with pytest.raises(RemoteProtocolError, match="from 4 present neighbours, got 3"):
        d.parties[0].handle_ciphertexts(good[:-ITEM])
    few = good[:18] + b"\x80" + good[19 : 19 + ITEM]
    with pytest.raises(RemoteProtocolError, match="Expected >= 3 neighbours' ciphertexts, got 1"):
        d.parties[0].handle_ciphertexts(few)
    assert d.parties[0].state.phase is PartyPhase.PAIRING
    assert d.parties[0].handle_ciphertexts(good) == b""
    assert d.parties[0].handle_ciphertexts(good[:-1]) == b""  # too late to matter: not looked at


def test_what_is_no_ml_kem_key_is_its_sender_s_alone(drill):
    d = drill.build()
    key = decode(d.run, d.parties[1].advertise(), Advertise).key[:32] + b"\xff" * 1184
    statement = digest_advertisement(d.run.fingerprint, d.policy.roster, 1, key, bytes(32))
    message = Advertise(
        sender=1, round_number=0, key=key, nonce=bytes(32), signature=sign(d.private[1], statement)
    )
    with pytest.raises(RemoteProtocolError, match="ML-KEM-768 key of party 1"):
        d.server.handle_advertise(encode(d.run, message))


def test_a_library_without_ml_kem_is_named_with_the_version_that_has_it(drill, monkeypatch):
    primitives._load_kem_public_key.cache_clear()
    monkeypatch.setattr(primitives, "mlkem", None)
    with pytest.raises(AlgorithmMissing, match=r"cryptography 50 and later.*got cryptography \d+"):
        drill.build().parties[0].advertise()
