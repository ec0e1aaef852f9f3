"""Byte strings that are signed, committed to or sealed: they bind a secret to its context.

Each has its own tag, so that a value made for one purpose serves no other.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from parley.secure_agg.messages import RoundStart
from parley.secure_agg.primitives import derive, digest
from parley.secure_agg.protocol_parameters import RunParameters


@lru_cache(maxsize=4096)  # public, and computed once by each neighbour
def digest_advertisement(
    fingerprint: bytes, roster: bytes, index: int, key: bytes, nonce: bytes
) -> bytes:
    """Return what an identity signs: its key and nonce of the run, its index, all parties,
    parameters.
    """
    return digest(b"parley/advertise", fingerprint, roster, index.to_bytes(4, "big"), key, nonce)


def compute_commitment(
    run: RunParameters, number: int, index: int, kind: bytes, secret: bytes
) -> bytes:
    """Return the commitment to a round's secret of 256 random bits, to check a rebuilt secret
    against.
    """
    where = struct.pack(">II", number, index)
    return digest(b"parley/commit", run.fingerprint, where, kind, secret)


def compute_plan_digest(run: RunParameters, plan: RoundStart) -> bytes:
    """Return the digest of a plan, to which the round's pair keys are bound."""
    fixed = struct.pack(">II", plan.round_number, plan.dimension)
    return digest(b"parley/plan", run.fingerprint, fixed, plan.context, plan.participants)


def derive_table_key(recovery: bytes) -> bytes:
    """Return the key that seals a party's table of base keys, from its recovery secret c."""
    return derive(recovery, b"parley/table")


def encode_binding(run: RunParameters, number: int, sender: int, receiver: int) -> bytes:
    """Return the associated data to which a sealed message is bound."""
    return struct.pack(">32sIII", run.fingerprint, number, sender, receiver)


def digest_survivors(plan: bytes, survivors: bytes) -> bytes:
    """Return what a party signs once per round: this survivors' list, of this round's plan."""
    return digest(b"parley/survivors", plan, survivors)
