"""What a party accepts when it joins a run: whose keys these are, and enough of them.

Identities are pinned beforehand; a roster brings the neighbours' keys of the run, each signed by
its identity for these very parameters, and the nonces that the graph follows from.
"""

from __future__ import annotations

from dataclasses import dataclass

from parley.secure_agg.beacon import NONCE_BYTES
from parley.secure_agg.codec import decode
from parley.secure_agg.edges import EdgeWork, with_revealed
from parley.secure_agg.flags import unpack_mask
from parley.secure_agg.hybrid import transcript
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import Bytes, Nonces, Roster
from parley.secure_agg.outcome import SIGNATURE_BYTES
from parley.secure_agg.parameters import Policy, RunParameters
from parley.secure_agg.primitives import KEY_BYTES, kem_public, public_key, verifies
from parley.secure_agg.state import MaskingState
from parley.secure_agg.statements import advertised


@dataclass(frozen=True, kw_only=True, repr=False)
class Joined:
    """What a party has from set-up.

    Attributes:
        transcripts: what names the pair with each of them.
        exchanged: X25519's secret with each of them.
        kem_keys: their ML-KEM public keys; empty bytes where the run has none.
    """

    run: RunParameters
    near: list[int]
    transcripts: list[bytes]
    exchanged: list[bytes]
    kem_keys: list[bytes]


def own_keys(state: MaskingState) -> bytes:
    """The public keys of a party that has its private ones."""
    kem = kem_public(state.kem_seed) if state.run.hybrid else b""
    return public_key(state.private_key) + kem


def accept_roster(
    state: MaskingState, data: Bytes, nonces: Bytes, policy: Policy, work: EdgeWork
) -> Joined:
    """Verifies the neighbours' signed keys, and agrees on X25519's secret with each."""
    proposed = state.run.fingerprint
    roster = decode(state.run, data, Roster)
    run = _with_beacon(state, nonces, work)
    present = unpack_mask(roster.present, run.parties)
    cut = run.key_bytes
    size = cut + NONCE_BYTES + SIGNATURE_BYTES
    graph = run.neighbours[state.index]
    near: list[int] = graph[present[graph]].tolist()
    if not present[state.index] or len(roster.entries) != size * len(near):
        raise RemoteProtocolError(
            f"Expected party {state.index} itself and keys of {len(near)} neighbours in the "
            f"roster, got {len(roster.entries) // size} keys."
        )
    check_company(run, policy, "present", parties=int(present.sum()), neighbours=len(near))
    own = own_keys(state)
    entries = [roster.entries[n * size : (n + 1) * size] for n in range(len(near))]
    keys = [entry[:cut] for entry in entries]
    for part in (slice(KEY_BYTES), slice(KEY_BYTES, cut)):
        if part.start != cut and len({key[part] for key in (own, *keys)}) != len(keys) + 1:
            raise RemoteProtocolError("Expected a different key of each party, got one repeated.")
    for j, key, entry in zip(near, keys, entries, strict=True):
        identity = policy.identities[j]  # pinned, never the server's word
        nonce, signature = entry[cut : cut + NONCE_BYTES], entry[cut + NONCE_BYTES :]
        statement = advertised(proposed, state.roster, j, key, nonce)
        if not work.once(verifies, identity, signature, statement):
            raise RemoteProtocolError(
                f"Expected a key signed by the pinned identity of party {j} for these "
                "parameters and parties, got a forged one."
            )
    mine = (state.index, own)
    transcripts = [
        transcript(run.fingerprint, state.roster, mine, (j, key))
        for j, key in zip(near, keys, strict=True)
    ]
    exchanges = [(key[:KEY_BYTES], pair) for key, pair in zip(keys, transcripts, strict=True)]
    try:
        exchanged = work.pair_secrets(state.private_key, exchanges)
    except ValueError:
        raise RemoteProtocolError("Expected keys of large order, got a weak one.") from None
    return Joined(
        run=run,
        near=near,
        transcripts=transcripts,
        exchanged=exchanged,
        kem_keys=[key[KEY_BYTES:] for key in keys],
    )


def check_company(
    run: RunParameters, policy: Policy, what: str, *, parties: int, neighbours: int
) -> None:
    """Refuses a roster or a round in which the party would stand too much alone."""
    for name, got, least in (
        (f"{what} parties", parties, max(run.min_survivors, policy.min_survivors)),
        (f"{what} neighbours", neighbours, max(run.threshold, policy.minimum_degree)),
    ):
        if got < least:
            raise RemoteProtocolError(f"Expected >= {least} {name}, got {got}.")


def _with_beacon(state: MaskingState, nonces: Bytes, work: EdgeWork) -> RunParameters:
    if not state.run.sparse:
        if len(nonces):
            raise RemoteProtocolError("Expected no nonces for a complete graph, got some.")
        return state.run
    message = decode(state.run, nonces, Nonces)
    flags = unpack_mask(message.committed, state.run.parties)
    at = NONCE_BYTES * int(flags[: state.index].sum())
    if not flags[state.index] or message.nonces[at : at + NONCE_BYTES] != state.nonce:
        # A beacon without it could have been chosen by whoever chose the others.
        raise RemoteProtocolError(f"Expected the nonce of party {state.index} among all.")
    return work.once(with_revealed, state.run, message.committed, message.nonces)
