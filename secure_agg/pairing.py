"""The two steps between a roster and the pair secrets of a hybrid run, on a party's own state.

`encapsulate_to_all` answers the roster: a ciphertext for every neighbour. With it go the shares of
round 1, sealed by what this party alone encapsulated, since it has none of the others' ciphertexts
yet; the table that goes with them holds its own halves, for the same reason (`first_table`).
`complete_pairs` takes the others' ciphertexts, which come with the plan of round 1.
"""

from __future__ import annotations

import numpy as np

from parley.secure_agg.codec import decode, kem_items
from parley.secure_agg.edges import EdgeWork
from parley.secure_agg.flags import unpack_mask
from parley.secure_agg.hybrid import (
    Direction,
    confirmation,
    confirms,
    direction,
    pair_base,
    pair_chain,
    place,
    under_pad,
)
from parley.secure_agg.interface import DropoutPolicy, RemoteProtocolError
from parley.secure_agg.joining import Joined
from parley.secure_agg.messages import Bytes, Ciphertexts
from parley.secure_agg.outcome import SECRET_BYTES
from parley.secure_agg.parameters import Policy
from parley.secure_agg.primitives import Entropy
from parley.secure_agg.state import MaskingState, Pairing


def encapsulate_to_all(index: int, joined: Joined, work: EdgeWork) -> tuple[Pairing, bytes]:
    """What a party keeps, and the items of its Encapsulated."""
    kept: list[bytes] = []
    items: list[bytes] = []
    ends = zip(joined.near, joined.kem_keys, joined.transcripts, joined.exchanged, strict=True)
    for j, key, pair, exchanged in ends:
        try:
            secret, ciphertext = work.encapsulate(key)
        except ValueError:
            raise RemoteProtocolError(
                f"Expected an ML-KEM-768 public key of party {j}, got none."
            ) from None
        where = place(pair, index, j, ciphertext)
        kept.append(b"".join(direction(exchanged, secret, where)))
        items += [ciphertext, confirmation(secret, where)]
    pairing = Pairing(transcripts=joined.transcripts, exchanged=joined.exchanged, outgoing=kept)
    return pairing, b"".join(items)


def outgoing(pairing: Pairing) -> list[Direction]:
    """What each of this party's encapsulations gave."""
    return [_direction(kept) for kept in pairing.outgoing]


def first_table(own: list[Direction]) -> bytes:
    """What a party's table of round 1 holds: its halves, and the pads over the others'."""
    return b"".join(each.half + each.pad for each in own)


def complete_pairs(
    state: MaskingState, data: Bytes, policy: Policy, work: EdgeWork, entropy: Entropy
) -> list[int]:
    """Pair secrets from both directions; the neighbours whose ciphertext does not give its tag.

    A neighbour without one, or with one that does not match, gets a chain that nobody else has:
    no mask with it cancels, and no share sealed for it opens.

    Args:
        state: while PAIRING; chains, the keys of round 1 and `disputed` are written.
        entropy: for those chains.
    """
    run, pairing, me = state.run, state.pairing, state.index
    message = decode(run, data, Ciphertexts)
    if pairing is None:
        raise RemoteProtocolError("Expected ciphertexts while PAIRING, got them in another state.")
    places = np.flatnonzero(unpack_mask(message.sent, run.degree)).tolist()
    items = kem_items(message.items)
    if len(places) != len(items) or any(n >= len(state.near) for n in places):
        raise RemoteProtocolError(
            f"Expected a ciphertext of each of {len(places)} present neighbours, got {len(items)}."
        )
    least = max(run.threshold, policy.minimum_degree)
    if len(items) < least:
        raise RemoteProtocolError(f"Expected >= {least} neighbours' ciphertexts, got {len(items)}.")
    secrets = work.decapsulate(state.kem_seed, [ciphertext for ciphertext, _ in items])
    own, matched = outgoing(pairing), dict[int, Direction]()
    for n, (ciphertext, tag), secret in zip(places, items, secrets, strict=True):
        where = place(pairing.transcripts[n], state.near[n], me, ciphertext)
        if confirms(secret, where, tag):
            matched[n] = direction(pairing.exchanged[n], secret, where)
    chains, bases, envelopes, halves = [], [], [], []
    for n, j in enumerate(state.near):
        other = matched.get(n)
        if other is None:
            other = _direction(entropy(4 * SECRET_BYTES))
        low, high = (own[n], other) if me < j else (other, own[n])
        chains.append(pair_chain(low.root, high.root))
        bases.append(pair_base(low.half, high.half))
        envelopes.append(other.envelope)
        halves.append(under_pad(own[n].half, other.pad))
    state.chains, state.pairing = chains, None
    state.disputed = [state.near[n] for n in places if n not in matched]
    robust = run.dropouts is DropoutPolicy.ROBUST
    state.chain_round = 2 if robust else 1  # round 1 has separate keys where shares went ahead
    prepared = state.prepared.get(1)
    if prepared is not None:
        prepared.pair_keys, prepared.envelope_keys, prepared.halves = bases, envelopes, halves
    return state.disputed


def _direction(joined: bytes) -> Direction:
    size = SECRET_BYTES
    return Direction(*(joined[at : at + size] for at in range(0, 4 * size, size)))
