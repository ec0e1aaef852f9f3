"""Outcome of a round with given dropouts: survivors, thresholds and bytes on the wire.

The outcome is computed without running the protocol; tests compare it with the protocol. P are the
requested parties (all m), U those whose vector arrived, C ⊆ U those that confirm the list, A ⊆ C
those that reveal, N(i) the neighbours of i. A round completes if

* |U| ≥ minimum survivors and |C| ≥ the required confirmations;
* each i in U that does not reveal has |N(i) ∩ A| ≥ t: its self mask is rebuilt from shares;
* each i outside U, if not all its survivors N(i) ∩ U reveal, has |N(i) ∩ A| ≥ t: its pair keys of
the round are rebuilt from shares.

A party with |N(i) ∩ U| < t stays silent itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import (
    DropStage,
    LocalProtocolError,
    RemoteProtocolError,
    TooFewSurvivors,
)
from parley.secure_agg.primitives import KEM_CIPHERTEXT_BYTES
from parley.secure_agg.protocol_parameters import RunParameters, is_before_pairing

HEADER_BYTES = 18
SECRET_BYTES = 32
TAG_BYTES = 16
ENVELOPE_BYTES = 2 * SECRET_BYTES + TAG_BYTES
KEM_ITEM_BYTES = KEM_CIPHERTEXT_BYTES + TAG_BYTES
COMMITMENT_BYTES = 2 * SECRET_BYTES
SHARE_DIGEST_BYTES = 16
SIGNATURE_BYTES = 64
PLAN_FIXED_BYTES = 4 + 32

_Mask = NDArray[np.bool_]


def count_mask_bytes(count: int) -> int:
    """Return the bytes of a bit mask over `count` parties."""
    return (count + 7) // 8


def find_eligible(run: RunParameters, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `[m]` flags: parties present with at least t neighbours that are eligible, too."""
    while True:
        enough: NDArray[np.bool_] = present & (present[run.neighbours].sum(axis=1) >= run.threshold)
        if (enough == present).all():
            return enough
        present = enough


def choose_participants(run: RunParameters, candidates: Collection[int]) -> list[int]:
    """Return the candidates that can take part in a round, ascending.

    Raises:
        TooFewSurvivors: they are fewer than the minimum survivors.
    """
    present = np.isin(np.arange(run.parties), list(candidates))
    chosen: list[int] = np.flatnonzero(find_eligible(run, present)).tolist()
    if len(chosen) < run.min_survivors:
        raise TooFewSurvivors(
            f"Expected >= {run.min_survivors} participants, each with >= {run.threshold} "
            f"neighbours among them, got {len(chosen)} of {len(candidates)} remaining parties."
        )
    return chosen


def check_dropped(run: RunParameters, dropped: Mapping[int, DropStage]) -> None:
    """Raise LocalProtocolError if a party that drops out is none of the run."""
    for party in dropped:
        if not 0 <= party < run.parties:
            raise LocalProtocolError(f"Expected a party from 0 to {run.parties - 1}, got {party}.")


def _find_present(
    run: RunParameters, dropped: Mapping[int, DropStage], *stages: DropStage
) -> _Mask:
    present = np.ones(run.parties, dtype=bool)
    present[[party for party, stage in dropped.items() if stage in stages]] = False
    return present


def compute_outcome(
    run: RunParameters, dimension: int, dropped: Mapping[int, DropStage], *, number: int
) -> tuple[tuple[int, ...], int, int]:
    """Return the survivors of a round, and its bytes up and down.

    Raises:
        TooFewSurvivors: one of the module's conditions fails.
    """
    m, k, t = run.parties, run.degree, run.threshold
    check_dropped(run, dropped)
    vector = _find_present(run, dropped, DropStage.BEFORE_VECTOR)
    size = int(vector.sum())
    if size < run.min_survivors:
        raise TooFewSurvivors(f"Expected >= {run.min_survivors} survivors, got {size}.")
    in_sum = vector[run.neighbours].sum(axis=1) if dropped else np.full(m, k)
    confirming = vector & (in_sum >= t)
    confirming &= _find_present(run, dropped, DropStage.AFTER_VECTOR)
    if confirming.sum() < run.confirmations:
        raise TooFewSurvivors(
            f"Expected >= {run.confirmations} parties to confirm the survivors' list, got "
            f"{int(confirming.sum())}."
        )
    revealing = confirming.copy()
    revealing &= _find_present(run, dropped, DropStage.AFTER_VECTOR, DropStage.BEFORE_UNMASK)
    revealed = revealing[run.neighbours].sum(axis=1) if dropped else in_sum
    incomplete = np.where(vector, ~revealing, revealed < in_sum)
    short = incomplete & (revealed < t)
    if short.any():
        party = int(short.argmax())
        raise TooFewSurvivors(
            f"Expected >= {t} revealing neighbours for each of {int(incomplete.sum())} parties to "
            f"recover, got {int(revealed[party])} for party {party}."
        )
    header, half = HEADER_BYTES, SECRET_BYTES * is_before_pairing(number)
    dealt = SECRET_BYTES + half + 2 * SHARE_DIGEST_BYTES + ENVELOPE_BYTES
    shares = header + COMMITMENT_BYTES + TAG_BYTES + dealt * k
    up = m * shares + size * (header + dimension * run.ring_bits // 8 + half * k)
    down = m * (header + PLAN_FIXED_BYTES + count_mask_bytes(m) + ENVELOPE_BYTES * k)
    down += size * (header + count_mask_bytes(m))
    answering = int(confirming.sum())
    up += (header + SIGNATURE_BYTES) * answering
    down += (header + count_mask_bytes(m) + SIGNATURE_BYTES * run.confirmations) * answering
    reveal = (
        header + SECRET_BYTES + count_mask_bytes(k) + SECRET_BYTES * (in_sum + 2 * (k - in_sum))
    )
    up += int(reveal[revealing].sum())
    return tuple(np.flatnonzero(vector).tolist()), up, down


def pack_mask(flags: NDArray[np.bool_]) -> bytes:
    """Return a bit mask over parties."""
    return np.packbits(flags).tobytes()


def unpack_mask(mask: bytes, count: int) -> NDArray[np.bool_]:
    """Return `[count]` flags of a bit mask."""
    if len(mask) != count_mask_bytes(count):
        raise RemoteProtocolError(
            f"Expected a mask of {count_mask_bytes(count)} bytes for {count} parties, got "
            f"{len(mask)}."
        )
    flags = np.unpackbits(np.frombuffer(mask, dtype=np.uint8))
    if flags[count:].any():
        raise RemoteProtocolError(f"Expected spare bits 0 in a mask over {count} parties, got 1.")
    return flags[:count].view(np.bool_)
