"""What is signed, committed to, sealed and confirmed: the bytes that bind a secret to its place.

Each has its own tag, so that nothing made for one purpose serves another.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from parley.secure_agg.messages import RoundStart
from parley.secure_agg.primitives import derive, digest
from parley.secure_agg.protocol_parameters import RunParameters


@lru_cache(maxsize=4096)  # public, and asked for once by each neighbour
def digest_advertisement(
    fingerprint: bytes, roster: bytes, index: int, key: bytes, nonce: bytes
) -> bytes:
    """What an identity signs: its key and nonce of the run, its index, all parties, parameters."""
    return digest(b"parley/advertise", fingerprint, roster, index.to_bytes(4, "big"), key, nonce)


def compute_commitment(
    run: RunParameters, number: int, index: int, kind: bytes, secret: bytes
) -> bytes:
    """Commitment to a round's secret of 256 random bits, so that a rebuilt one can be checked."""
    where = struct.pack(">II", number, index)
    return digest(b"parley/commit", run.fingerprint, where, kind, secret)


def compute_plan_digest(run: RunParameters, plan: RoundStart) -> bytes:
    """What a round's pair keys are bound to."""
    fixed = struct.pack(">II", plan.round_number, plan.dimension)
    return digest(b"parley/plan", run.fingerprint, fixed, plan.context, plan.participants)


def derive_table_key(recovery: bytes) -> bytes:
    """The key that seals a party's table of base keys, from its recovery secret c."""
    return derive(recovery, b"parley/table")


def encode_binding(run: RunParameters, number: int, sender: int, receiver: int) -> bytes:
    """What a sealed message is bound to."""
    return struct.pack(">32sIII", run.fingerprint, number, sender, receiver)


def digest_survivors(plan: bytes, survivors: bytes) -> bytes:
    """What a party signs once a round: this survivors' list, of this round's plan."""
    return digest(b"parley/survivors", plan, survivors)
