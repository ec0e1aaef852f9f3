"""Keys of an edge: derivation, and the computation that parties of one process can share.

For a pair i, j and a round r, each with domain-separated info:

    chain^1   = HKDF-Extract(salt = `compute_transcript` of the pair, X25519(i, j))
    chain^r+1 = HKDF-Expand(chain^r, "next")       a round's keys cannot be had from later state
    base^r, envelope^r = HKDF-Expand(chain^r, purpose ‖ r)
    k^r       = HKDF-Expand(base^r, "mask" ‖ digest of the round's plan)

Chains and base^1 are derived from X25519 and ML-KEM-768 together.

Both ends of an edge derive the same bytes. A single party uses `PairKeyComputer`. Parties of one
process share a `CachedPairKeyComputer`, which reuses the results of an edge's other end: same
bytes, half the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import digest_nonces
from parley.secure_agg.messages import split_nonces
from parley.secure_agg.predicted_outcome import TAG_BYTES, unpack_mask
from parley.secure_agg.primitives import (
    agree,
    decapsulate,
    derive,
    derive_kem_public_key,
    digest,
    encapsulate,
    extract,
    is_equal_constant_time,
    is_valid_signature,
)
from parley.secure_agg.protocol_parameters import RunParameters


class DirectionKeys(NamedTuple):
    """Keys from one party's encapsulation to another, 32 bytes each.

    Attributes:
        envelope: seals the share of round 1.
        half: this direction's half of the pair's mask in round 1.
        pad: hides the other direction's half from all but those who know this pad.
        root: this direction's input to the pair's chain.
    """

    envelope: bytes
    half: bytes
    pad: bytes
    root: bytes

    def __repr__(self) -> str:
        return "<Direction: four keys>"


def compute_transcript(
    fingerprint: bytes, roster: bytes, one: tuple[int, bytes], other: tuple[int, bytes]
) -> bytes:
    """Return the digest that binds a pair secret to run, algorithms, roster, ends and public keys.

    Args:
        roster: digest of all identities in order, so that an index names an identity.
        one, other: index and public keys of the ends, in any order.
    """
    (low, key), (high, its) = sorted((one, other))
    ends = low.to_bytes(4, "big") + high.to_bytes(4, "big")
    return digest(b"parley/pair", fingerprint, roster, ends, key, its)


def compute_ciphertext_id(pair: bytes, sender: int, receiver: int, ciphertext: bytes) -> bytes:
    """Return a digest that names a ciphertext, its pair and its direction."""
    ends = sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")
    return digest(b"parley/ciphertext", pair, ends, ciphertext)


def compute_confirmation_tag(secret: bytes, where: bytes) -> bytes:
    """Return the tag that shows the receiver that it decapsulated what the sender encapsulated.

    The tag depends only on the ML-KEM secret, so that the key alone can prove the tag false. No
    other secret is needed.
    """
    return derive(secret, b"parley/kem confirm" + where)[:TAG_BYTES]


def is_confirmation_tag(secret: bytes, where: bytes, tag: bytes) -> bool:
    """Return whether a tag belongs to this secret and ciphertext."""
    return is_equal_constant_time(compute_confirmation_tag(secret, where), tag)


def derive_direction_keys(exchanged: bytes, secret: bytes, where: bytes) -> DirectionKeys:
    """Derive a direction's keys from the pair's X25519 secret and the direction's ML-KEM secret."""
    both = extract(exchanged, derive(secret, b"parley/kem secret"))
    return DirectionKeys(
        *(
            derive(both, b"parley/direction " + name + where)
            for name in (b"envelope", b"half", b"pad", b"root")
        )
    )


def derive_pair_base(first: bytes, second: bytes) -> bytes:
    """Derive the base of a pair's round 1 mask from the halves of the lower and higher index."""
    return extract(b"parley/hybrid base", first + second)


def derive_pair_chain(first: bytes, second: bytes) -> bytes:
    """Derive a pair's chain from the roots of the lower and the higher index."""
    return extract(b"parley/hybrid chain", first + second)


def apply_pad(value: bytes, pad: bytes) -> bytes:
    """XOR 32 bytes with a pad that is used for no other value: hide the value, or recover it."""
    return (int.from_bytes(value, "big") ^ int.from_bytes(pad, "big")).to_bytes(32, "big")


EdgeKeys = tuple[bytes, bytes, bytes]
"""(next chain, base, envelope key) of one pair and round."""

_Asked = TypeVarTuple("_Asked")
_Made = TypeVar("_Made")


def derive_next_chain(chain: bytes) -> bytes:
    """Derive chain^r+1; the step is one-way."""
    return derive(chain, b"parley/next")


def derive_edge_keys(chain: bytes, number: int) -> EdgeKeys:
    """Derive the keys of round `number` from the chain at that round."""
    where = number.to_bytes(4, "big")
    base, envelope = (derive(chain, name + where) for name in (b"parley/base", b"parley/envelope"))
    return derive_next_chain(chain), base, envelope


def derive_mask_key(base: bytes, plan: bytes) -> bytes:
    """Derive k^r. A party with another plan has another mask, so its vector cannot be unmasked."""
    return derive(base, b"parley/mask" + plan)


def find_signers(
    statement: bytes, identities: tuple[bytes, ...], claimed: bytes, signatures: bytes
) -> NDArray[np.bool_]:
    """Return `[m]` flags of the parties in the mask `claimed` with a valid signature of
    `statement`.
    """
    signed = unpack_mask(claimed, len(identities)).copy()
    pieces = [signatures[at : at + 64] for at in range(0, len(signatures), 64)]
    for i, piece in zip(np.flatnonzero(signed).tolist(), pieces, strict=True):
        signed[i] = is_valid_signature(identities[i], piece, statement)
    return signed


def with_revealed_beacon(run: RunParameters, committed: bytes, nonces: bytes) -> RunParameters:
    """Return the parameters with the beacon from the nonces of the parties in a mask."""
    revealed = split_nonces(run, committed, nonces)
    if digest_nonces(revealed) != run.commitments:
        raise RemoteProtocolError("Expected the nonces that the parties committed to, got others.")
    return run.with_beacon(revealed)


class PairKeyComputer:
    """Computes each secret itself and stores none."""

    def compute_once(self, compute: Callable[[*_Asked], _Made], *arguments: *_Asked) -> _Made:
        """Return a function's result; parties of one process request it with the same arguments."""
        return compute(*arguments)

    def compute_for_edge(self, compute: Callable[[*_Asked], _Made], *arguments: *_Asked) -> _Made:
        """Return a secret of an edge that only the edge's two ends request."""
        return compute(*arguments)

    def agree_pair_secrets(
        self, private: bytes, exchanges: list[tuple[bytes, bytes]]
    ) -> list[bytes]:
        """Return chain^1 for each (peer key, salt)."""
        return agree(private, exchanges)

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        """Return (secret, ciphertext) for an ML-KEM key, from the operating system's entropy."""
        return encapsulate(public)

    def decapsulate(self, seed: bytes, ciphertexts: list[bytes]) -> list[bytes]:
        """Return the secret of each ciphertext."""
        return decapsulate(seed, ciphertexts)

    def clear(self, *, ciphertexts: bool = False) -> None:
        """Do nothing: no result is stored."""


class CachedPairKeyComputer(PairKeyComputer):
    """Cache for parties of one process. An edge's second end removes what the first end stored.

    `clear` drops results that were never used.
    """

    def __init__(self) -> None:
        self._cached: dict[Any, Any] = {}
        self._pairs: dict[bytes, bytes] = {}
        self._secrets: dict[bytes, bytes] = {}

    def compute_once(self, make: Callable[[*_Asked], _Made], *asked: *_Asked) -> _Made:
        """Return the result as `PairKeyComputer` does, computed once."""
        if (make, asked) not in self._cached:
            self._cached[make, asked] = make(*asked)
        result: _Made = self._cached[make, asked]
        return result

    def compute_for_edge(self, make: Callable[[*_Asked], _Made], *asked: *_Asked) -> _Made:
        """Return the secret as `PairKeyComputer` does; store it for one end, forget it with the
        other.
        """
        if (make, asked) in self._cached:
            made: _Made = self._cached.pop((make, asked))
        else:
            made = self._cached[make, asked] = make(*asked)
        return made

    def agree_pair_secrets(
        self, private: bytes, exchanges: list[tuple[bytes, bytes]]
    ) -> list[bytes]:
        """Return the secrets as `PairKeyComputer` does, with one exchange per edge.

        The salt names the edge, because it depends on both keys.
        """
        missing = [exchange for exchange in exchanges if exchange[1] not in self._pairs]
        mine = {salt for _, salt in missing}
        for (_, salt), secret in zip(missing, agree(private, missing), strict=True):
            self._pairs[salt] = secret
        return [
            self._pairs[salt] if salt in mine else self._pairs.pop(salt) for _, salt in exchanges
        ]

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        """Encapsulate as `PairKeyComputer` does; the other end looks it up by the ciphertext."""
        secret, ciphertext = encapsulate(public)
        self._secrets[digest(b"parley/shared", public, ciphertext)] = secret
        return secret, ciphertext

    def decapsulate(self, seed: bytes, ciphertexts: list[bytes]) -> list[bytes]:
        """Decapsulate as `PairKeyComputer` does; look up what was encapsulated here for this very
        key.
        """
        public = derive_kem_public_key(seed)
        known = [self._secrets.pop(digest(b"parley/shared", public, c), None) for c in ciphertexts]
        missing = [c for c, secret in zip(ciphertexts, known, strict=True) if secret is None]
        fresh = iter(decapsulate(seed, missing) if missing else ())
        return [next(fresh) if secret is None else secret for secret in known]

    def clear(self, *, ciphertexts: bool = False) -> None:
        """Forget unused results. Pass `ciphertexts` only when no ciphertext is in transit."""
        self._cached.clear()
        self._pairs.clear()
        if ciphertexts:
            self._secrets.clear()
