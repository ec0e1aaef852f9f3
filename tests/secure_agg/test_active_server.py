"""No message tells a secret (the ninth failure), and what an active server would try next."""

import io
import logging
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from forgeries import forged_confirmations, refused_without_secrets

from parley.secure_agg.codec import decode, encode
from parley.secure_agg.flags import pack_mask
from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import SERVER, Confirmations, RoundStart
from parley.secure_agg.state import Phase

_SAID = ("roster", "ciphertexts", "plan", "close", "confirmations")


# 9. Secrets stay in the state after the round: see test_pairwise. Here: nowhere else either.
def test_9_no_secret_is_in_a_message_a_log_an_error_or_a_repr(drill, caplog):
    caplog.set_level(logging.DEBUG)
    d = drill.build()
    sent = io.BytesIO()
    real = d.server

    def tap(name):
        method = getattr(real, name)

        def call(message, **options):
            sent.write(bytes(message))
            return method(message, **options)

        return call

    names = ("on_advertise", "on_encapsulated", "on_shares", "on_vector", "on_confirm", "on_reveal")
    d.server = SimpleNamespace(
        **{name: tap(name) for name in names},
        **{name: getattr(real, name) for name in _SAID},
        finish=real.finish,
    )
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
    for i, message in confirmations.items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    revealed = sent.getvalue()[len(before_reveal) :]
    # What a reveal says: own self seeds, and the round's keys with the dropped party. No more.
    allowed = set(seeds.values()) - {seeds[4]} if 4 in seeds else set(seeds.values())
    pairs = {k for k in secrets if k in revealed} - allowed
    assert len(pairs) == 4
    d.server.finish()
    text = caplog.text + repr(real) + "".join(repr(p) + repr(p.state) for p in d.parties.values())
    assert not any(secret.hex() in text for secret in secrets)


# What an active server would try next.
def test_a_replayed_plan_is_refused(drill):
    d = drill.joined(drill.build())
    plans = drill.planned(d)
    party = d.parties[0]
    party.on_plan(plans[0], d.vectors[0], context=d.context)
    for phase in range(2):
        refused_without_secrets(
            party,
            lambda: party.on_plan(plans[0], d.vectors[0], context=d.context),
            "Expected a round above 1, got 1",
        )
        if phase == 0:
            party.abandon()


def test_another_context_than_agreed_is_refused(drill):
    d = drill.joined(drill.build())
    plans = drill.planned(d)
    refused_without_secrets(
        d.parties[0],
        lambda: d.parties[0].on_plan(plans[0], d.vectors[0], context=b"x" * 32),
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
    messages = [d.parties[0].on_plan(encode(d.run, split), d.vectors[0], context=d.context)]
    messages += [
        d.parties[i].on_plan(plans[i], d.vectors[i], context=d.context) for i in range(1, 5)
    ]
    for message in messages:
        d.server.on_vector(message)
    listed = d.server.close()
    confirms = {i: p.on_survivors(listed) for i, p in d.parties.items() if i}
    with pytest.raises(RemoteProtocolError, match="among the participants"):
        d.parties[0].on_survivors(listed)
    for confirm in confirms.values():
        d.server.on_confirm(confirm)
    for i, message in d.server.confirmations().items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    total = d.server.finish()
    assert not np.array_equal(total, np.add.reduce(d.vectors, axis=0, dtype=np.uint32))


def test_confirmations_that_are_forged_repeated_or_too_few_are_refused(drill):
    def attempt(forge, match, error=TooFewSurvivors):
        d = drill.joined(drill.build())
        _, listed = drill.masked(d)
        own = {i: p.on_survivors(listed) for i, p in d.parties.items()}
        honest = decode(
            d.run, forged_confirmations(d, {i: own[i] for i in (1, 2, 3)}), Confirmations
        )
        forged = Confirmations(**{**vars(honest), **forge(honest, own)})
        party = d.parties[0]
        refused_without_secrets(
            party, lambda: party.on_confirmations(encode(d.run, forged)), match, error
        )
        assert party.state.phase is Phase.IDLE
        refused_without_secrets(
            party, lambda: party.on_confirmations(encode(d.run, honest)), "while IDLE"
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
    own = {i: p.on_survivors(listed) for i, p in d.parties.items()}
    reveal = d.parties[0].on_confirmations(forged_confirmations(d, {**own, 4: bytes(82)}))
    assert len(reveal) == 18 + 32 + 1 + 4 * 32


def test_messages_out_of_order_or_of_another_run_change_nothing(drill):
    d, other = drill.joined(drill.build()), drill.joined(drill.build(ring_bits=64))
    plans = drill.planned(other)
    party = d.parties[0]
    before = party.state.to_bytes()
    foreign = [plans[0], b"", b"\x01", struct.pack(">BB8sII", 1, 4, b"x" * 8, SERVER, 1)]
    for message in foreign:
        with pytest.raises(RemoteProtocolError):
            party.on_plan(message, d.vectors[0], context=d.context)
        with pytest.raises(RemoteProtocolError):
            party.on_survivors(message)
        with pytest.raises(RemoteProtocolError):
            party.on_confirmations(message)
        with pytest.raises(RemoteProtocolError):
            party.on_roster(message)
    assert party.state.to_bytes() == before
