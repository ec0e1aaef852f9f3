"""Disputes over ciphertexts that do not match: who is blamed, and who is asked for proof.

A receiver that reports a neighbour's ciphertext accuses that neighbour, and one of the two lies. A
party that accuses more than c others, or is accused by more than c, is convicted. Otherwise the
accuser is asked for proof (docs/protocol.md, *Ciphertexts that do not match*).
"""

from __future__ import annotations

import numpy as np

from parley.secure_agg.confirmation_threshold import count_signers_near, count_signers_needed
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.kem_delivery import CiphertextDelivery
from parley.secure_agg.messages import Complaint, Evidence, split_kem_items
from parley.secure_agg.pair_keys import (
    compute_ciphertext_id,
    compute_transcript,
    is_confirmation_tag,
)
from parley.secure_agg.predicted_outcome import unpack_mask
from parley.secure_agg.primitives import KEY_BYTES, decapsulate, derive_kem_public_key


def record_complaint(delivery: CiphertextDelivery, message: Complaint) -> None:
    """Record a party's complaint about ciphertexts that do not match."""
    sender = message.sender
    near, items = delivery.neighbours[sender], delivery.pending.get(sender, {})
    places = np.flatnonzero(unpack_mask(message.accused, delivery.run.degree)).tolist()
    accused = {near[n] for n in places if n < len(near)}
    if not delivery.closed or sender in delivery.accused_by or sender not in delivery.sent:
        raise RemoteProtocolError(
            f"Expected one complaint from party {sender}, about the ciphertexts that it "
            "received, got a second one, or one before it received any."
        )
    if len(accused) != len(places) or not accused or not accused <= set(items):
        raise RemoteProtocolError(
            f"Expected a complaint from party {sender} about neighbours whose ciphertexts it "
            "received, got one about no party or about another party."
        )
    delivery.accused_by[sender] = accused
    _convict_by_count(delivery)


def _convict_by_count(delivery: CiphertextDelivery) -> None:
    """Convict parties that accuse, or are accused by, more than max(1, c) others.

    At least one of those others is honest.
    """
    most = max(1, delivery.run.corrupt)
    for accuser, accused in delivery.accused_by.items():
        if len(accused) > most:
            delivery.blamed.add(accuser)
    for j in set().union(*delivery.accused_by.values()):
        if len([i for i, accused in delivery.accused_by.items() if j in accused]) > most:
            delivery.blamed.add(j)


def list_accusers_to_ask(delivery: CiphertextDelivery) -> tuple[int, ...]:
    """Return, in order, the accusers to ask for evidence: those that add an accused party.

    An accuser that may not prove with the list shown is not asked. It stays apart from those it
    accuses.
    """
    if delivery.signers is None:
        return ()
    asked, heard, least = [], set[int](), count_signers_needed(delivery.run)
    for accuser, accused in delivery.undecided.items():
        near = count_signers_near(delivery.run, delivery.neighbours[accuser], delivery.signers)
        if near >= least and not accused <= heard:
            asked.append(accuser)
            heard |= accused
    return tuple(asked)


def judge_evidence(delivery: CiphertextDelivery, message: Evidence) -> None:
    """Decapsulate the disputed ciphertexts and convict the party of each pair that lied."""
    sender = message.sender
    if sender not in delivery.undecided:
        raise RemoteProtocolError(
            f"Expected no evidence from party {sender}, got some: it has nothing to prove."
        )
    if derive_kem_public_key(message.seed) != delivery.adverts[sender].key[KEY_BYTES:]:
        raise RemoteProtocolError(
            f"Expected the seed of the ML-KEM-768 key that party {sender} signed, got "
            "the seed of another key."
        )
    for j in sorted(delivery.undecided[sender]):
        ((ciphertext, tag),) = split_kem_items(delivery.pending[sender][j])
        (secret,) = decapsulate(message.seed, [ciphertext])
        ends = (sender, delivery.adverts[sender].key), (j, delivery.adverts[j].key)
        pair = compute_transcript(delivery.run.fingerprint, delivery.roster, *ends)
        where = compute_ciphertext_id(pair, j, sender, ciphertext)
        delivery.blamed.add(sender if is_confirmation_tag(secret, where, tag) else j)
    delivery.departed.add(sender)
    delivery.pending.pop(sender)
