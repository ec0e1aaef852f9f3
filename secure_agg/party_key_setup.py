"""Checks of a party that joins a run: its neighbours' keys are authentic, and there are enough.

Identities are pinned beforehand. A roster contains the neighbours' keys of the run, each signed by
its identity for exactly these parameters. It comes with the nonces that determine the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import NONCE_BYTES
from parley.secure_agg.messages import Bytes, Ciphertexts, Nonces, Roster, decode, split_kem_items
from parley.secure_agg.pair_keys import (
    DirectionKeys,
    PairKeyComputer,
    apply_pad,
    compute_ciphertext_id,
    compute_confirmation_tag,
    compute_transcript,
    derive_direction_keys,
    derive_pair_base,
    derive_pair_chain,
    is_confirmation_tag,
    with_revealed_beacon,
)
from parley.secure_agg.party_state import MaskingState, Pairing
from parley.secure_agg.predicted_outcome import SECRET_BYTES, SIGNATURE_BYTES, unpack_mask
from parley.secure_agg.primitives import (
    KEY_BYTES,
    PUBLIC_KEY_BYTES,
    Entropy,
    derive_kem_public_key,
    derive_public_key,
    is_valid_signature,
)
from parley.secure_agg.protocol_digests import digest_advertisement
from parley.secure_agg.protocol_parameters import ProtocolRequirements, RunParameters


@dataclass(frozen=True, kw_only=True, repr=False)
class SetupResult:
    """A party's result of the set-up.

    Attributes:
        transcripts: digest that names the pair, per neighbour.
        exchanged: X25519 secret, per neighbour.
        kem_keys: ML-KEM public key, per neighbour.
    """

    run: RunParameters
    neighbours: list[int]
    transcripts: list[bytes]
    exchanged: list[bytes]
    kem_keys: list[bytes]


def derive_public_keys(state: MaskingState) -> bytes:
    """Return a party's public keys, derived from its private ones."""
    return derive_public_key(state.private_key) + derive_kem_public_key(state.kem_seed)


def accept_roster(
    state: MaskingState,
    data: Bytes,
    nonces: Bytes,
    requirements: ProtocolRequirements,
    work: PairKeyComputer,
) -> SetupResult:
    """Verify the neighbours' signed keys and agree on an X25519 secret with each.

    Raises:
        RemoteProtocolError: the roster breaks the protocol or the party's requirements.
    """
    proposed = state.run.fingerprint
    roster = decode(state.run, data, Roster)
    run = _with_beacon(state, nonces, work)
    present = unpack_mask(roster.present, run.parties)
    cut = PUBLIC_KEY_BYTES
    size = cut + NONCE_BYTES + SIGNATURE_BYTES
    graph = run.neighbours[state.index]
    near: list[int] = graph[present[graph]].tolist()
    if not present[state.index] or len(roster.entries) != size * len(near):
        raise RemoteProtocolError(
            f"Expected party {state.index} itself and keys of {len(near)} neighbours in the "
            f"roster, got {len(roster.entries) // size} keys."
        )
    check_neighbour_count(
        run, requirements, "present", parties=int(present.sum()), neighbours=len(near)
    )
    own = derive_public_keys(state)
    entries = [roster.entries[n * size : (n + 1) * size] for n in range(len(near))]
    keys = [entry[:cut] for entry in entries]
    for part in (slice(KEY_BYTES), slice(KEY_BYTES, cut)):
        if part.start != cut and len({key[part] for key in (own, *keys)}) != len(keys) + 1:
            raise RemoteProtocolError("Expected different keys of the parties, got a repeated one.")
    for j, key, entry in zip(near, keys, entries, strict=True):
        identity = requirements.identities[j]  # pinned, never received from the server
        nonce, signature = entry[cut : cut + NONCE_BYTES], entry[cut + NONCE_BYTES :]
        statement = digest_advertisement(proposed, state.roster, j, key, nonce)
        if not work.compute_once(is_valid_signature, identity, signature, statement):
            raise RemoteProtocolError(
                f"Expected a key signed by the pinned identity of party {j} for these "
                "parameters and parties, got a forged one."
            )
    mine = (state.index, own)
    transcripts = [
        compute_transcript(run.fingerprint, state.roster, mine, (j, key))
        for j, key in zip(near, keys, strict=True)
    ]
    exchanges = [(key[:KEY_BYTES], pair) for key, pair in zip(keys, transcripts, strict=True)]
    try:
        exchanged = work.agree_pair_secrets(state.private_key, exchanges)
    except ValueError:
        raise RemoteProtocolError("Expected keys of large order, got a weak one.") from None
    return SetupResult(
        run=run,
        neighbours=near,
        transcripts=transcripts,
        exchanged=exchanged,
        kem_keys=[key[KEY_BYTES:] for key in keys],
    )


def check_neighbour_count(
    run: RunParameters,
    requirements: ProtocolRequirements,
    subject: str,
    *,
    parties: int,
    neighbours: int,
) -> None:
    """Check that a roster or a round has enough parties and enough neighbours of this party."""
    for name, got, least in (
        (f"{subject} parties", parties, max(run.min_survivors, requirements.min_survivors)),
        (f"{subject} neighbours", neighbours, max(run.threshold, requirements.minimum_degree)),
    ):
        if got < least:
            raise RemoteProtocolError(f"Expected >= {least} {name}, got {got}.")


def _with_beacon(state: MaskingState, nonces: Bytes, work: PairKeyComputer) -> RunParameters:
    if not state.run.sparse:
        if len(nonces):
            raise RemoteProtocolError("Expected no nonces for a complete graph, got some.")
        return state.run
    message = decode(state.run, nonces, Nonces)
    flags = unpack_mask(message.committed, state.run.parties)
    at = NONCE_BYTES * int(flags[: state.index].sum())
    if not flags[state.index] or message.nonces[at : at + NONCE_BYTES] != state.nonce:
        # A beacon without this nonce could have been chosen by those who chose the other nonces.
        raise RemoteProtocolError(
            f"Expected the nonce of party {state.index} among the revealed ones, got others."
        )
    return work.compute_once(with_revealed_beacon, state.run, message.committed, message.nonces)


def encapsulate_to_all(
    index: int, joined: SetupResult, work: PairKeyComputer
) -> tuple[Pairing, bytes]:
    """Encapsulate to each neighbour; return what the party stores, and the items of its
    Encapsulated.
    """
    kept: list[bytes] = []
    items: list[bytes] = []
    ends = zip(
        joined.neighbours, joined.kem_keys, joined.transcripts, joined.exchanged, strict=True
    )
    for j, key, pair, exchanged in ends:
        try:
            secret, ciphertext = work.encapsulate(key)
        except ValueError:
            raise RemoteProtocolError(
                f"Expected an ML-KEM-768 public key of party {j}, got other bytes."
            ) from None
        where = compute_ciphertext_id(pair, index, j, ciphertext)
        kept.append(b"".join(derive_direction_keys(exchanged, secret, where)))
        items += [ciphertext, compute_confirmation_tag(secret, where)]
    pairing = Pairing(transcripts=joined.transcripts, exchanged=joined.exchanged, outgoing=kept)
    return pairing, b"".join(items)


def parse_outgoing(pairing: Pairing) -> list[DirectionKeys]:
    """Return the keys of each of this party's encapsulations."""
    return [_parse_direction(kept) for kept in pairing.outgoing]


def encode_first_table(directions: list[DirectionKeys]) -> bytes:
    """Return the content of a party's table of round 1: its halves, and pads over the others'."""
    return b"".join(each.half + each.pad for each in directions)


def complete_pairs(
    state: MaskingState,
    data: Bytes,
    requirements: ProtocolRequirements,
    work: PairKeyComputer,
    entropy: Entropy,
) -> list[int]:
    """Complete the pair secrets and return the neighbours whose ciphertext does not match its tag.

    A neighbour without a ciphertext, or with one that does not match, gets a chain that no other
    party has. No mask with it cancels, and no share sealed for it opens.

    Args:
        state: must be PAIRING; its chains, the keys of round 1 and `disputed` are written.
    """
    run, pairing, me = state.run, state.pairing, state.index
    message = decode(run, data, Ciphertexts)
    if pairing is None:
        raise RemoteProtocolError("Expected ciphertexts while PAIRING, got them in another state.")
    places = np.flatnonzero(unpack_mask(message.sent, run.degree)).tolist()
    items = split_kem_items(message.items)
    if len(places) != len(items) or any(n >= len(state.neighbours) for n in places):
        raise RemoteProtocolError(
            f"Expected ciphertexts from {len(places)} present neighbours, got {len(items)}."
        )
    least = max(run.threshold, requirements.minimum_degree)
    if len(items) < least:
        raise RemoteProtocolError(f"Expected >= {least} neighbours' ciphertexts, got {len(items)}.")
    secrets = work.decapsulate(state.kem_seed, [ciphertext for ciphertext, _ in items])
    own, matched = parse_outgoing(pairing), dict[int, DirectionKeys]()
    for n, (ciphertext, tag), secret in zip(places, items, secrets, strict=True):
        where = compute_ciphertext_id(pairing.transcripts[n], state.neighbours[n], me, ciphertext)
        if is_confirmation_tag(secret, where, tag):
            matched[n] = derive_direction_keys(pairing.exchanged[n], secret, where)
    chains, bases, envelopes, halves = [], [], [], []
    for n, j in enumerate(state.neighbours):
        other = matched.get(n)
        if other is None:
            other = _parse_direction(entropy(4 * SECRET_BYTES))
        low, high = (own[n], other) if me < j else (other, own[n])
        chains.append(derive_pair_chain(low.root, high.root))
        bases.append(derive_pair_base(low.half, high.half))
        envelopes.append(other.envelope)
        halves.append(apply_pad(own[n].half, other.pad))
    state.chains, state.pairing = chains, None
    state.disputed = [state.neighbours[n] for n in places if n not in matched]
    state.chain_round = 2  # round 1 has separate keys: its shares were sent before
    prepared = state.prepared.get(1)
    if prepared is not None:
        prepared.pair_keys, prepared.envelope_keys, prepared.halves = bases, envelopes, halves
    return state.disputed


def _parse_direction(joined: bytes) -> DirectionKeys:
    size = SECRET_BYTES
    return DirectionKeys(*(joined[at : at + size] for at in range(0, 4 * size, size)))
