"""A party's round: prepare its secrets and shares, then mask its vector.

    y_i = x_i + PRG(b_i) ± Σ_j PRG(k_ij)  mod 2^b, + where i < j          (Bonawitz et al. 2017)

The self seed b and the recovery secret c are fresh entropy. c opens a sealed table of this party's
base keys of the round, so that t neighbours can replace a party that dropped. Keys of a pair are
ratcheted: the chain from which a round's keys were derived is erased.

Masks are pseudorandom vectors of Z/2^b, expanded from a key and added in place. The mask of a key
is its AES-256-CTR keystream as little-endian words. Piece p starts at counter block `p as 96 bits ‖
2`, so that pieces can be computed in any order, or in threads. A piece of 256 KiB stays in cache
together with the part of the vector to which it is added. Pieces are the outer loop, keys the inner
one: the vector passes through memory once, not once per neighbour.
"""

from __future__ import annotations

import numpy as np

from parley.secure_agg.encoding import Ring, get_ring_dtype
from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError
from parley.secure_agg.mask_expansion import add_masks, allocate_aligned
from parley.secure_agg.messages import (
    Bytes,
    RoundShares,
    RoundStart,
    Vector,
    decode,
    encode,
    encode_header,
)
from parley.secure_agg.pair_keys import (
    PairKeyComputer,
    derive_edge_keys,
    derive_mask_key,
    derive_next_chain,
)
from parley.secure_agg.party_key_setup import (
    check_neighbour_count,
    encode_first_table,
    parse_outgoing,
)
from parley.secure_agg.party_state import MaskingState, OpenRound, PartyPhase, PreparedRound
from parley.secure_agg.predicted_outcome import (
    ENVELOPE_BYTES,
    HEADER_BYTES,
    SECRET_BYTES,
    unpack_mask,
)
from parley.secure_agg.primitives import Entropy, compute_share_digest, seal
from parley.secure_agg.protocol_digests import (
    compute_commitment,
    compute_plan_digest,
    derive_table_key,
    encode_binding,
)
from parley.secure_agg.protocol_parameters import ProtocolRequirements
from parley.secure_agg.shamir import split


class MaskJob:
    """Vector that is about to be masked, and the only copy of it that is not masked yet.

    The vector is stored inside the message that carries it, so that there is one copy, not three.
    `added_keys` are keys whose masks are added, `subtracted_keys` those whose masks are subtracted.
    """

    def __init__(self, head: bytes, vector: Ring, tail: bytes = b"") -> None:
        end = HEADER_BYTES + vector.nbytes
        raw = allocate_aligned(end + len(tail), start=HEADER_BYTES)
        raw[:HEADER_BYTES] = np.frombuffer(head, dtype=np.uint8)
        self.words: Ring = raw[HEADER_BYTES:end].view(vector.dtype.newbyteorder("<"))
        self.words[:] = vector
        raw[end:] = np.frombuffer(tail, dtype=np.uint8)
        self.message = raw.data
        self.added_keys: list[bytes] = []
        self.subtracted_keys: list[bytes] = []

    def run(self) -> memoryview:
        """Add the masks and return the message."""
        add_masks(self.words, self.added_keys, self.subtracted_keys)
        return self.message


def prepare_round(
    state: MaskingState, number: int, work: PairKeyComputer, entropy: Entropy
) -> bytes:
    """Return a round's Shares and store its secrets in the state. See `MaskingParty.prepare`."""
    run, me = state.run, state.index
    if not PartyPhase.PAIRING <= state.phase < PartyPhase.LEFT:
        raise LocalProtocolError(
            f"Expected to prepare a round after joining, got {state.phase.name}."
        )
    if state.pairing is not None:
        if number != 1 or state.prepared:
            raise RemoteProtocolError(
                f"Expected round 1 to prepare, once, before the neighbours' ciphertexts came, "
                f"got round {number}."
            )
        own = parse_outgoing(state.pairing)
        prepared = PreparedRound(seed=b"", pair_keys=[], envelope_keys=[])
        sealing, table = [each.envelope for each in own], encode_first_table(own)
    else:
        prepared = derive_round_keys(state, number, work)
        sealing, table = prepared.envelope_keys, b"".join(prepared.pair_keys)
    recovery = entropy(SECRET_BYTES)
    prepared.seed = entropy(SECRET_BYTES)
    graph: list[int] = run.neighbours[me].tolist()
    shares = split(prepared.seed + recovery, len(graph), run.threshold, entropy)
    by_neighbour = dict(zip(graph, shares, strict=True))
    digests = b"".join(
        compute_share_digest(share[:SECRET_BYTES]) + compute_share_digest(share[SECRET_BYTES:])
        for share in (by_neighbour[j] for j in state.neighbours)
    )
    sealed = [
        seal(key, me, by_neighbour[j], encode_binding(run, number, me, j))
        for j, key in zip(state.neighbours, sealing, strict=True)
    ]
    message = RoundShares(
        sender=me,
        round_number=number,
        commitments=compute_commitment(run, number, me, b"self", prepared.seed)
        + compute_commitment(run, number, me, b"recovery", recovery),
        table=seal(derive_table_key(recovery), me, table, encode_binding(run, number, me, me)),
        digests=digests,
        envelopes=b"".join(sealed),
    )
    while len(state.prepared) >= 2:
        del state.prepared[min(state.prepared)]
    state.prepared[number] = prepared
    return encode(run, message)


def derive_round_keys(state: MaskingState, number: int, work: PairKeyComputer) -> PreparedRound:
    """Return a round's keys, without a self seed, and advance the chains to the round after it."""
    if not state.chain_round <= number <= state.run.rounds:
        raise RemoteProtocolError(
            f"Expected a round from {state.chain_round} to {state.run.rounds}, the last that "
            f"the run can reach, got {number}."
        )
    chains = state.chains
    for _ in range(state.chain_round, number):
        chains = [derive_next_chain(chain) for chain in chains]
    keys = [work.compute_for_edge(derive_edge_keys, chain, number) for chain in chains]
    state.chains = [following for following, _, _ in keys]  # the chain of these keys is erased
    state.chain_round = number + 1
    return PreparedRound(
        seed=b"",
        pair_keys=[base for _, base, _ in keys],
        envelope_keys=[envelope for _, _, envelope in keys],
    )


def open_round(
    state: MaskingState,
    data: Bytes,
    vector: Ring,
    context: bytes,
    requirements: ProtocolRequirements,
    work: PairKeyComputer,
) -> MaskJob:
    """Open the round of a plan; see `MaskingParty.handle_plan`.

    All checks precede the first change of the state: a refused plan changes nothing.
    """
    run = state.run
    dtype = get_ring_dtype(run.ring_bits)
    if vector.dtype != dtype or vector.ndim != 1:
        raise LocalProtocolError(
            f"Expected a vector [d] of {dtype}, got {vector.dtype} of shape {vector.shape}."
        )
    plan = decode(run, data, RoundStart)
    number = plan.round_number
    if number <= state.last_round:
        raise RemoteProtocolError(f"Expected a round above {state.last_round}, got {number}.")
    if plan.dimension != vector.size or plan.context != context:
        raise RemoteProtocolError(
            f"Expected dimension {vector.size} and the agreed context, got dimension "
            f"{plan.dimension} and {'that' if plan.context == context else 'another'} context."
        )
    flags = unpack_mask(plan.participants, run.parties)
    members = np.flatnonzero(flags[state.neighbours]).tolist() if state.neighbours else []
    if not flags[state.index]:
        raise RemoteProtocolError(f"Expected party {state.index} among the participants.")
    check_neighbour_count(
        run, requirements, "participating", parties=int(flags.sum()), neighbours=len(members)
    )
    for j in state.disputed:
        if flags[j]:  # no mask with it would cancel
            raise RemoteProtocolError(
                f"Expected a round without party {j}, whose ciphertext does not match, got one "
                "with it."
            )
    if len(plan.envelopes) != ENVELOPE_BYTES * len(members):
        raise RemoteProtocolError(
            f"Expected {len(members)} envelopes of {ENVELOPE_BYTES} bytes, got "
            f"{len(plan.envelopes)} bytes."
        )
    if number not in state.prepared:
        raise RemoteProtocolError(f"Expected a prepared round, got round {number}.")
    prepared = state.prepared.pop(number)
    for stale in [n for n in state.prepared if n < number]:
        del state.prepared[stale]
    agreed = compute_plan_digest(run, plan)
    pair_keys = [
        work.compute_for_edge(derive_mask_key, prepared.pair_keys[n], agreed) for n in members
    ]
    halves = b"".join(prepared.halves[n] for n in members) if prepared.halves else b""
    head = encode_header(run, Vector.kind, state.index, number)
    job = MaskJob(head, vector, halves)
    job.added_keys.append(prepared.seed)
    for n, key in zip(members, pair_keys, strict=True):
        (job.added_keys if state.index < state.neighbours[n] else job.subtracted_keys).append(key)
    state.last_round, state.kem_seed = number, b""  # from here no dispute can be proved
    state.phase = PartyPhase.MASKED
    state.current = OpenRound(
        number=number,
        plan_digest=agreed,
        participants=plan.participants,
        seed=prepared.seed,
        members=members,
        pair_keys=pair_keys,
        envelope_keys=[prepared.envelope_keys[n] for n in members],
        envelopes=plan.envelopes,
    )
    return job
