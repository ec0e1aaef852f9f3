"""What is signed, committed to, sealed and confirmed: the bytes that bind a secret to its place.

Each has a tag of its own, so that nothing made for one purpose serves another.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from secure_agg.messages import Plan
from secure_agg.parameters import RunParameters
from secure_agg.primitives import derive, digest

__all__ = ["advertised", "bound", "commitment", "plan_digest", "survivors_digest", "table_key"]
__all__ += ["way"]


@lru_cache(maxsize=4096)  # public, and asked for once by each neighbour
def advertised(fingerprint: bytes, index: int, identity: bytes, key: bytes) -> bytes:
    """What an identity signs: its key of the run, its index, and every parameter."""
    return digest(b"parley/advertise", fingerprint, index.to_bytes(4, "big"), identity, key)


def commitment(run: RunParameters, number: int, index: int, which: bytes, secret: bytes) -> bytes:
    """Commitment to a round's secret of 256 random bits, so that a rebuilt one can be checked."""
    where = struct.pack(">II", number, index)
    return digest(b"parley/commit", run.fingerprint, where, which, secret)


def plan_digest(run: RunParameters, plan: Plan) -> bytes:
    """What a round's pair keys are bound to."""
    fixed = struct.pack(">II", plan.round_number, plan.dimension)
    return digest(b"parley/plan", run.fingerprint, fixed, plan.context, plan.participants)


def table_key(recovery: bytes) -> bytes:
    """The key that seals a party's table of base keys, from its recovery secret c."""
    return derive(recovery, b"parley/table")


def bound(run: RunParameters, number: int, sender: int, receiver: int) -> bytes:
    """What a sealed message is bound to."""
    return struct.pack(">32sIII", run.fingerprint, number, sender, receiver)


def survivors_digest(plan: bytes, survivors: bytes) -> bytes:
    """What a party's MACs confirm, with `way` after it: this list, of this round's plan."""
    return digest(b"parley/survivors", plan, survivors)


def way(sender: int, receiver: int) -> bytes:
    """Who confirms to whom: a MAC cannot be sent back to its maker."""
    return struct.pack(">II", sender, receiver)
