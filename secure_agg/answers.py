"""What a party says about a survivors' list: whether it is acceptable, its MACs, its reveal.

Functions of an open round. One list decides everything: each participating neighbour is in it or
not, and that says which one of its two secrets may be spoken about.
"""

from __future__ import annotations

import numpy as np

from secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from secure_agg.messages import Confirmations, Reveal, pack_mask, unpack_mask
from secure_agg.outcome import CONFIRMATION_BYTES, ENVELOPE_BYTES, SECRET_BYTES
from secure_agg.primitives import mac, mac_matches, unseal
from secure_agg.state import OpenRound, PartyState
from secure_agg.statements import bound, survivors_digest, way

__all__ = ["accept_survivors", "check_confirmations", "confirmation_macs", "make_reveal"]

_NO_SHARE = bytes(SECRET_BYTES)


def _members(state: PartyState, current: OpenRound) -> list[tuple[int, int]]:
    """(place, index) of the participating neighbours."""
    return [(at, state.near[n]) for at, n in enumerate(current.members)]


def accept_survivors(
    state: PartyState, current: OpenRound, survivors: bytes, least: int
) -> list[bool]:
    """Whether each party survived, by the list that the server sent.

    Args:
        state: of the party.
        current: its open round.
        survivors: bit mask over the parties.
        least: survivors that run and policy ask for.

    Raises:
        RemoteProtocolError: not a subset of the participants, or without this party.
        TooFewSurvivors: below `least`, or fewer neighbours than the threshold.
    """
    run = state.run
    flags = unpack_mask(survivors, run.parties)
    if (flags & ~unpack_mask(current.participants, run.parties)).any():
        raise RemoteProtocolError("Expected survivors among the participants, got others.")
    if not flags[state.index]:
        raise RemoteProtocolError(f"Expected party {state.index}, which sent, to survive.")
    size = int(flags.sum())
    if size < least:
        raise TooFewSurvivors(f"Expected >= {least} survivors, got {size}.")
    survived: list[bool] = flags.tolist()
    alive = sum(survived[j] for _, j in _members(state, current))
    if alive < run.threshold:
        raise TooFewSurvivors(f"Expected >= {run.threshold} surviving neighbours, got {alive}.")
    return survived


def confirmation_macs(state: PartyState, current: OpenRound, survived: list[bool]) -> bytes:
    """A MAC over the list for each surviving neighbour, in order."""
    statement = survivors_digest(current.plan_digest, current.survivors)
    return b"".join(
        mac(current.mac_keys[at], statement + way(state.index, j))
        for at, j in _members(state, current)
        if survived[j]
    )


def check_confirmations(
    state: PartyState, current: OpenRound, message: Confirmations
) -> list[bool]:
    """Whether each party survived, once the neighbours' MACs over the same list are verified.

    Raises:
        RemoteProtocolError: a MAC over another list, or of a party that is not on it.
        TooFewSurvivors: fewer MACs than the threshold.
    """
    run, me = state.run, state.index
    survived: list[bool] = unpack_mask(current.survivors, run.parties).tolist()
    heard = unpack_mask(message.heard, run.degree).tolist()
    statement = survivors_digest(current.plan_digest, current.survivors)
    at_mac = 0
    for at, j in _members(state, current):
        if not heard[at]:
            continue
        got = message.macs[at_mac : at_mac + CONFIRMATION_BYTES]
        at_mac += CONFIRMATION_BYTES
        expected = mac(current.mac_keys[at], statement + way(j, me))
        if not survived[j] or not mac_matches(expected, got):
            raise RemoteProtocolError(
                f"Expected party {j} to confirm the same survivors' list, got another MAC."
            )
    if at_mac != len(message.macs) or any(heard[len(current.members) :]):
        raise RemoteProtocolError(
            f"Expected one MAC for each neighbour heard, got {len(message.macs)} bytes."
        )
    count = at_mac // CONFIRMATION_BYTES
    if count < run.threshold:
        raise TooFewSurvivors(f"Expected >= {run.threshold} confirming neighbours, got {count}.")
    return survived


def make_reveal(state: PartyState, current: OpenRound, survived: list[bool]) -> Reveal:
    """Own self seed, and for each neighbour the one secret that the list allows."""
    run, me = state.run, state.index
    opened, secrets = [False] * run.degree, []
    for at, j in _members(state, current):
        sealed = current.envelopes[at * ENVELOPE_BYTES : (at + 1) * ENVELOPE_BYTES]
        share = unseal(current.envelope_keys[at], j, sealed, bound(run, current.number, j, me))
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
