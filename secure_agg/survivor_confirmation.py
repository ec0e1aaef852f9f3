"""A party's steps with a survivors' list: accept it, check who confirmed it, reveal.

These are functions of an open round. One list decides everything: each participating neighbour is
on it or not, which determines the one of its two secrets whose share may be revealed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import Confirmations, Reveal
from parley.secure_agg.pair_keys import PairKeyComputer, find_signers
from parley.secure_agg.party_state import MaskingState, OpenRound
from parley.secure_agg.predicted_outcome import (
    ENVELOPE_BYTES,
    SECRET_BYTES,
    SIGNATURE_BYTES,
    pack_mask,
    unpack_mask,
)
from parley.secure_agg.primitives import unseal
from parley.secure_agg.protocol_digests import (
    digest_survivors,
    encode_binding,
)
from parley.secure_agg.protocol_parameters import ProtocolRequirements, RunParameters

_NO_SHARE = bytes(SECRET_BYTES)


def _list_members(state: MaskingState, current: OpenRound) -> list[tuple[int, int]]:
    """Return (position, index) of the participating neighbours."""
    return [(at, state.neighbours[n]) for at, n in enumerate(current.members)]


def accept_survivors(
    state: MaskingState, current: OpenRound, survivors: bytes, requirements: ProtocolRequirements
) -> list[bool]:
    """Check the server's survivors' list and return whether each party survived.

    Raises:
        RemoteProtocolError: others than participants survived, or this party is missing.
        TooFewSurvivors: too few survivors, or too few among this party's neighbours.
    """
    run = state.run
    flags = unpack_mask(survivors, run.parties)
    if (flags & ~unpack_mask(current.participants, run.parties)).any():
        raise RemoteProtocolError("Expected survivors among the participants, got others.")
    if not flags[state.index]:
        raise RemoteProtocolError(
            f"Expected party {state.index}, which sent its vector, among the survivors, got a list "
            "without it."
        )
    size = int(flags.sum())
    least = max(run.min_survivors, requirements.min_survivors)
    if size < least:
        raise TooFewSurvivors(f"Expected >= {least} survivors, got {size}.")
    survived: list[bool] = flags.tolist()
    alive = sum(survived[j] for _, j in _list_members(state, current))
    near = max(run.threshold, requirements.minimum_degree)
    if alive < near:
        raise TooFewSurvivors(f"Expected >= {near} surviving neighbours, got {alive}.")
    return survived


def find_true_signers(
    run: RunParameters,
    plan: bytes,
    survivors: bytes,
    message: Confirmations,
    identities: tuple[bytes, ...],
    work: PairKeyComputer,
) -> NDArray[np.bool_]:
    """Return `[m]` flags of the parties that signed this list of this plan, if they are enough.

    An invalid signature is not counted and has no other effect.

    Raises:
        TooFewSurvivors: fewer valid signatures than the run requires.
    """
    survived = unpack_mask(survivors, run.parties)
    claimed = unpack_mask(message.signers, run.parties)
    if (claimed & ~survived).any():
        raise RemoteProtocolError("Expected confirmations of survivors only, got others.")
    if len(message.signatures) != SIGNATURE_BYTES * int(claimed.sum()):
        raise RemoteProtocolError(
            f"Expected {claimed.sum()} signatures, got {len(message.signatures)} bytes."
        )
    statement = digest_survivors(plan, survivors)
    signed = message.signers, message.signatures
    signers = work.compute_once(find_signers, statement, identities, *signed)
    count = int(signers.sum())
    if count < run.confirmations:
        raise TooFewSurvivors(
            f"Expected >= {run.confirmations} parties to confirm this survivors' list, got {count}."
        )
    return signers


def build_reveal(state: MaskingState, current: OpenRound, survived: list[bool]) -> Reveal:
    """Build the reveal: the party's self seed, and per neighbour the one secret that the list
    allows.
    """
    run, me = state.run, state.index
    opened, secrets = [False] * run.degree, []
    for at, j in _list_members(state, current):
        sealed = current.envelopes[at * ENVELOPE_BYTES : (at + 1) * ENVELOPE_BYTES]
        bound_to = encode_binding(run, current.number, j, me)
        share = unseal(current.envelope_keys[at], j, sealed, bound_to)
        opened[at] = share is not None
        if survived[j]:
            secrets.append(share[:SECRET_BYTES] if share else _NO_SHARE)
        else:
            secrets.append(current.pair_keys[at])
            secrets.append(share[SECRET_BYTES:] if share else _NO_SHARE)
    return Reveal(
        sender=me,
        round_number=current.number,
        seed=current.seed,
        opened=pack_mask(np.array(opened)),
        secrets=b"".join(secrets),
    )
