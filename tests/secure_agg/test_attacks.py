"""Attack drills: what Flower's SecAgg+ gets wrong, tried on ours. Each is refused by the party.

The nine failures of the specification's list, and what an active server would try next. After
every refusal the party answers nothing more in that round, and no secret is in the error."""

import io
import logging

import numpy as np
import pytest
from forgeries import forged_confirmations, refused_without_secrets
from one_mask import mask_of
from sums_expected import expected_sum

from parley.secure_agg.encoding import EncodingError, FixedPoint, RingTooSmall
from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import SERVER, Confirmations, Roster, RoundStart, decode, encode
from parley.secure_agg.pair_keys import CachedPairKeyComputer
from parley.secure_agg.party_state import PartyPhase
from parley.secure_agg.predicted_outcome import pack_mask
from parley.secure_agg.primitives import derive_public_key
from parley.secure_agg.protocol_parameters import ProtocolRequirements
from parley.secure_agg.state_encoding import encode_state


# 1. The 256-bit seed is folded to 32 bits and feeds a Mersenne Twister.
def test_1_masks_use_every_bit_of_their_key_and_are_not_linear():
    base = mask_of(bytes(32), 64, np.dtype(np.uint32))
    for bit in range(256):
        key = bytearray(32)
        key[bit // 8] ^= 1 << bit % 8
        other = mask_of(bytes(key), 64, np.dtype(np.uint32))
        assert (base != other).sum() >= 60
    a, b = bytes([1]) + bytes(31), bytes([2]) + bytes(31)
    both = mask_of(bytes([3]) + bytes(31), 64, np.dtype(np.uint32))
    assert not np.array_equal(
        mask_of(a, 64, np.dtype(np.uint32)) ^ mask_of(b, 64, np.dtype(np.uint32)) ^ base, both
    )


# 2. The largest ring element is never drawn; with a ring of 2 every mask is zero.
def test_2_every_ring_element_is_drawn():
    words = mask_of(bytes(32), 2_000_000, np.dtype(np.uint16))
    counts = np.bincount(words, minlength=2**16)
    assert counts.min() > 0  # P[some value missing] = 65536·e^(−30.5) = 4e-9
    assert counts[2**16 - 1] > 0


def test_3_two_lists_to_two_camps_are_refused_by_both(drill):
    d = drill.joined(drill.build())
    drill.masked(d)
    camps = {0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 2: [0, 1, 2, 4], 4: [0, 1, 2, 4]}
    confirms = {
        i: d.parties[i].handle_survivors(drill.listed(d, camp)) for i, camp in camps.items()
    }
    for i, camp in camps.items():
        party = d.parties[i]
        everyone = forged_confirmations(d, {j: c for j, c in confirms.items() if j in camp})
        refused_without_secrets(
            party,
            lambda p=party, m=everyone: p.handle_confirmations(m),
            "Expected >= 3 parties to confirm this survivors' list, got 2",
            TooFewSurvivors,
        )
        assert party.state.phase is PartyPhase.IDLE
        assert party.state.current is None


def test_3_a_party_declared_dropped_after_it_sent_refuses(drill):
    d = drill.joined(drill.build())
    drill.masked(d)
    party = d.parties[0]
    refused_without_secrets(
        party,
        lambda: party.handle_survivors(drill.listed(d, [1, 2, 3, 4])),
        "which sent its vector, among the survivors",
    )


# 4. Keys are not authenticated: the server in the middle.
def test_4_a_key_that_its_pinned_identity_did_not_sign_is_refused(drill):
    d = drill.advertised(drill.build())
    rosters = d.server.build_rosters()
    roster = decode(d.run, rosters[0], Roster)
    middle = derive_public_key(b"m" * 32)
    entries = {
        "another key, old signature": middle + roster.entries[32:],
        "keys exchanged": roster.entries[96:192] + roster.entries[:96] + roster.entries[192:],
        "a key twice": roster.entries[:96] * 2 + roster.entries[192:],
        "a weak key": bytes(32) + roster.entries[32:],
        "one missing": roster.entries[96:],
    }
    for forged in entries.values():
        message = Roster(sender=SERVER, round_number=0, present=roster.present, entries=forged)
        party = d.parties[0]
        refused_without_secrets(
            party, lambda p=party, m=message: p.handle_roster(encode(d.run, m)), "Expected"
        )
        assert party.state.phase is PartyPhase.ADVERTISED
    d.parties[0].handle_roster(rosters[0])


def test_4_a_signature_for_other_parameters_is_refused(drill):
    d, other = drill.build(), drill.advertised(drill.build(ring_bits=64))
    message = decode(other.run, other.server.build_rosters()[0], Roster)
    d.parties[0].advertise()
    refused_without_secrets(
        d.parties[0], lambda: d.parties[0].handle_roster(encode(d.run, message)), "these parameters"
    )


def test_4_a_party_with_another_s_identity_is_refused_on_its_own_side(drill):
    d = drill.build()
    with pytest.raises(LocalProtocolError, match="identity pinned for party 0"):
        d.party(0, identity=d.private[1])


# 5. The server chooses threshold 1, or a ring of 2, and the party obeys.
def test_5_weak_parameters_are_refused_by_the_party(drill):
    d = drill.build(10)
    strict = ProtocolRequirements(
        identities=d.identities, min_survivors=8, minimum_degree=9, corrupt=3
    )
    with pytest.raises(RemoteProtocolError, match="Expected min_survivors >= 8, got 6"):
        d.party(0, policy=strict)
    for chosen in ({"threshold": 1}, {"degree": 1}):
        with pytest.raises(TypeError, match="unexpected keyword"):  # nobody can say either
            drill.build(10, **chosen)
    with pytest.raises(ValueError, match="16, 32 or 64, got 1"):
        drill.build(ring_bits=1)


def test_5_a_cohort_below_the_party_s_own_minimum_is_refused_at_every_step(drill):
    d = drill.build(9)
    policy = ProtocolRequirements(
        identities=d.identities, min_survivors=5, minimum_degree=7, corrupt=0
    )
    d = drill.build(9, policy=policy)
    rosters = drill.advertised(d, range(7)).server.build_rosters()
    refused_without_secrets(
        d.parties[0],
        lambda: d.parties[0].handle_roster(rosters[0]),
        "Expected >= 7 present neighbours",
    )
    d = drill.joined(drill.build(9))
    drill.masked(d)
    party = d.parties[0]
    refused_without_secrets(
        party,
        lambda: party.handle_survivors(drill.listed(d, [0, 1, 2])),
        ">= 5 survivors",
        TooFewSurvivors,
    )
    assert party.state.current is None


def test_5_a_plan_with_too_few_participants_is_refused(drill):
    d = drill.joined(drill.build(9))
    plans = drill.planned(d)
    plan = decode(d.run, plans[0], RoundStart)
    flags = np.zeros(9, dtype=bool)
    flags[:3] = True
    small = RoundStart(
        **{**vars(plan), "participants": pack_mask(flags), "envelopes": plan.envelopes[:160]}
    )
    party = d.parties[0]
    refused_without_secrets(
        party,
        lambda: party.handle_plan(encode(d.run, small), d.vectors[0], context=d.context),
        "Expected >= 5 participating parties, got 3",
    )


# 6. One ciphertext forwarded many times passes the count check.
def test_6_a_repeated_or_moved_envelope_gives_no_share(drill):
    d = drill.joined(drill.build())
    plans = drill.planned(d)
    plan = decode(d.run, plans[0], RoundStart)
    repeated = plan.envelopes[:80] * 4
    forged = RoundStart(**{**vars(plan), "envelopes": repeated})
    plans[0] = encode(d.run, forged)
    drill.sent(d, plans)
    confirmations = drill.signed(d, d.server.close())
    reveal = d.parties[0].handle_confirmations(confirmations[0])
    # Only the envelope that was really party 1's for party 0 opens; the rest are zeros.
    assert reveal[50] == 0b1000_0000
    assert reveal[51 + 32 :] == bytes(3 * 32)


def test_6_an_envelope_of_an_earlier_round_does_not_open(drill):
    d = drill.joined(drill.build())
    old = decode(d.run, drill.planned(d, 1)[0], RoundStart)
    plans = drill.planned(d, 2)
    new = decode(d.run, plans[0], RoundStart)
    plans[0] = encode(d.run, RoundStart(**{**vars(new), "envelopes": old.envelopes}))
    drill.sent(d, plans)
    confirmations = drill.signed(d, d.server.close())
    assert d.parties[0].handle_confirmations(confirmations[0])[50] == 0


# 7. Values out of range, too many parties, or a NaN give a silently wrong mean.
def test_7_values_that_do_not_fit_are_refused_before_anything_is_sent(drill):
    grid = FixedPoint(scale_bits=20, ring_bits=32, bound=1.0)
    for bad in (float("nan"), float("inf"), 1.5, -2.0):
        with pytest.raises(EncodingError, match="in row 0, coordinate 1"):
            grid.encode(np.array([[0.0, bad]]))
    with pytest.raises(RingTooSmall, match="got 5000 × 1048577"):
        grid.check_capacity(5000, 0.0)
    d = drill.joined(drill.build())
    plans = drill.planned(d)
    party = d.parties[0]
    before = encode_state(party.state)
    for vector in (d.vectors[0].astype(float), d.vectors[0].astype(np.uint64), d.vectors):
        with pytest.raises(LocalProtocolError, match="Expected a vector"):
            party.handle_plan(plans[0], vector, context=d.context)
    with pytest.raises(RemoteProtocolError, match="Expected dimension 5"):
        party.handle_plan(plans[0], d.vectors[0][:5], context=d.context)
    assert encode_state(party.state) == before


# 8. A dropout during set-up or sharing kills the round; a garbage share aborts it.
@pytest.mark.parametrize("garbage", [1, 2, 10])
def test_8_garbage_shares_of_as_many_as_may_be_corrupt_do_not_stop_recovery(drill, garbage):
    # At m = 100 ten of 99 shares are garbage: every secret is still rebuilt, from true ones alone.
    parties = 100 if garbage == 10 else 12
    work = CachedPairKeyComputer() if parties == 100 else None  # the same bytes, in half the time
    d = drill.joined(drill.build(parties, corrupt=max(2, garbage), dimension=3, work=work))
    confirmations = drill.confirmed(d, absent=[3])
    liars = [i for i in range(parties) if i not in (3, 7)][:garbage]
    for i, message in confirmations.items():
        if i == 7:
            continue  # lost: its self seed, and its key with party 3, must be rebuilt
        reveal = bytearray(d.parties[i].handle_confirmations(message))
        if i in liars:
            members = [j for j in range(parties) if j != i]
            for about in (3, 7):  # shares that are needed; few enough for the dealers to be liars
                # 3 was dropped: its pair key stands before its share and all that follow.
                at = 18 + 32 + -(-(parties - 1) // 8) + 32 * (members.index(about) + 1)
                reveal[at : at + 32] = b"\x5a" * 32
        d.server.handle_reveal(bytes(reveal))
    assert np.array_equal(d.server.finish(), expected_sum(d, [3]))


def test_8_garbage_envelopes_and_tables_of_a_party_hurt_nobody_else(drill):
    d = drill.joined(drill.build())
    for i, party in d.parties.items():
        shares = party.prepare(1)
        if i == 1:
            shares = shares[:82] + bytes(len(shares) - 82)
        d.server.handle_shares(shares)
    drill.delivered(d)
    total = drill.summed(d, drill.plan(d))
    assert np.array_equal(total, expected_sum(d))


# 9. Secrets stay in the state after the round: see test_pairwise. Here: nowhere else either.
def test_9_no_secret_is_in_a_message_a_log_an_error_or_a_repr(drill, caplog):
    caplog.set_level(logging.DEBUG)
    d = drill.build()
    sent = io.BytesIO()

    def tapped(method):
        def call(message, **options):
            sent.write(bytes(message))
            return method(message, **options)

        return call

    for name in (
        "handle_advertise", "handle_encapsulated", "handle_shares", "handle_vector",
        "handle_confirm", "handle_reveal",
    ):  # fmt: skip
        setattr(d.server, name, tapped(getattr(d.server, name)))
    drill.joined(d)
    confirmations = drill.confirmed(d, absent=[4])
    before_reveal = sent.getvalue()
    seeds = {i: p.state.current.seed for i, p in d.parties.items() if p.state.current}
    secrets = {s for p in d.parties.values() for s in p.state.chains}
    for party in d.parties.values():
        if party.state.current:
            current = party.state.current
            secrets |= {*current.pair_keys, *current.envelope_keys}
    secrets |= set(d.drawn) | set(d.private) | set(seeds.values())
    vectors = [row.tobytes() for row in d.vectors]
    assert not any(secret in before_reveal for secret in secrets if secret)
    assert not any(row in before_reveal for row in vectors)
    drill.revealed(d, confirmations)
    revealed = sent.getvalue()[len(before_reveal) :]
    # What a reveal says: own self seeds, and the round's keys with the dropped party. No more.
    allowed = set(seeds.values()) - {seeds[4]} if 4 in seeds else set(seeds.values())
    pairs = {k for k in secrets if k in revealed} - allowed
    assert len(pairs) == 4
    text = (
        caplog.text + repr(d.server) + "".join(repr(p) + repr(p.state) for p in d.parties.values())
    )
    assert not any(secret.hex() in text for secret in secrets)


# What an active server would try next.
def test_a_replayed_plan_is_refused(drill):
    d = drill.joined(drill.build())
    plans = drill.planned(d)
    party = d.parties[0]
    party.handle_plan(plans[0], d.vectors[0], context=d.context)
    for phase in range(2):
        refused_without_secrets(
            party,
            lambda: party.handle_plan(plans[0], d.vectors[0], context=d.context),
            "Expected a round above 1, got 1",
        )
        if phase == 0:
            party.abort_round()
    other = d.parties[1]
    refused_without_secrets(
        other,
        lambda: other.handle_plan(plans[1], d.vectors[1], context=b"x" * 32),
        "agreed context",
    )


def test_two_plans_for_one_round_give_masks_that_do_not_cancel(drill):
    d = drill.joined(drill.build())
    plans = drill.planned(d, 2)
    flags = np.ones(5, dtype=bool)
    flags[4] = False
    plan = decode(d.run, plans[0], RoundStart)
    split = RoundStart(
        **{**vars(plan), "participants": pack_mask(flags), "envelopes": plan.envelopes[:240]}
    )
    plans[0] = encode(d.run, split)
    drill.sent(d, plans)
    listed = d.server.close()
    with pytest.raises(RemoteProtocolError, match="among the participants"):
        d.parties.pop(0).handle_survivors(listed)
    for party in d.parties.values():
        d.server.handle_confirm(party.handle_survivors(listed))
    total = drill.revealed(d, d.server.build_confirmations())
    assert not np.array_equal(total, np.add.reduce(d.vectors, axis=0, dtype=np.uint32))


def test_confirmations_that_are_forged_repeated_or_too_few_are_refused(drill):
    def attempt(forge, match, error=TooFewSurvivors):
        d = drill.joined(drill.build())
        _, listed = drill.masked(d)
        own = {i: p.handle_survivors(listed) for i, p in d.parties.items()}
        honest = decode(
            d.run, forged_confirmations(d, {i: own[i] for i in (1, 2, 3)}), Confirmations
        )
        forged = Confirmations(**{**vars(honest), **forge(honest, own)})
        party = d.parties[0]
        refused_without_secrets(
            party, lambda: party.handle_confirmations(encode(d.run, forged)), match, error
        )
        assert party.state.phase is PartyPhase.IDLE
        refused_without_secrets(
            party, lambda: party.handle_confirmations(encode(d.run, honest)), "while IDLE"
        )

    two = "Expected >= 3 parties to confirm this survivors' list, got 2"
    attempt(lambda h, own: {"signatures": bytes(64) + h.signatures[64:]}, two)
    attempt(lambda h, own: {"signatures": h.signatures[:64] * 2 + h.signatures[128:]}, two)
    attempt(lambda h, own: {"signatures": h.signatures[:128], "signers": b"\x60"}, two)
    attempt(lambda h, own: {"signatures": h.signatures[:128]}, "3 signatures", RemoteProtocolError)
    attempt(lambda h, own: {"round_number": 2}, "round 1, got 2", RemoteProtocolError)


def test_false_signatures_among_enough_true_ones_do_no_harm(drill):
    d = drill.joined(drill.build())
    _, listed = drill.masked(d)
    own = {i: p.handle_survivors(listed) for i, p in d.parties.items()}
    reveal = d.parties[0].handle_confirmations(forged_confirmations(d, {**own, 4: bytes(82)}))
    assert len(reveal) == 18 + 32 + 1 + 4 * 32
