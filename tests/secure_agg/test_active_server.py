"""No message tells a secret (the ninth failure), and what an active server would try next."""

import io
import logging

import numpy as np
import pytest
from forgeries import forged_confirmations, refused_without_secrets

from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import Confirmations, RoundStart, decode, encode
from parley.secure_agg.outcome import pack_mask
from parley.secure_agg.state import Phase


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
        "on_advertise", "on_encapsulated", "on_shares", "on_vector", "on_confirm", "on_reveal",
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
    party.on_plan(plans[0], d.vectors[0], context=d.context)
    for phase in range(2):
        refused_without_secrets(
            party,
            lambda: party.on_plan(plans[0], d.vectors[0], context=d.context),
            "Expected a round above 1, got 1",
        )
        if phase == 0:
            party.abandon()
    other = d.parties[1]
    refused_without_secrets(
        other,
        lambda: other.on_plan(plans[1], d.vectors[1], context=b"x" * 32),
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
        d.parties.pop(0).on_survivors(listed)
    for party in d.parties.values():
        d.server.on_confirm(party.on_survivors(listed))
    total = drill.revealed(d, d.server.confirmations())
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
