"""The keys of an edge, and who computes them.

By pair i, j and round r, all with domain-separated info:

    chain^1   = HKDF-Extract(salt = `compute_transcript` of the pair, X25519(i, j))
    chain^r+1 = HKDF-Expand(chain^r, "next")       a round's keys cannot be had from later state
    base^r, envelope^r = HKDF-Expand(chain^r, purpose ‖ r)
    k^r       = HKDF-Expand(base^r, "mask" ‖ digest of the round's plan)

Chains and base^1 come from X25519 and ML-KEM-768 together.

Both ends of an edge derive the same bytes. A party alone uses `PairKeyComputer`; parties of one
process share a `CachedPairKeyComputer`, which does for one end what the other end has done
already: same bytes, half the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import compute_commitments_digest, compute_nonce_commitment
from parley.secure_agg.messages import split_nonces
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
from parley.secure_agg.round_outcome import TAG_BYTES, unpack_mask


class DirectionKeys(NamedTuple):
    """What one party's encapsulation to another gives, 32 bytes each.

    Attributes:
        envelope: seals the share of round 1.
        half: of the pair's mask in round 1.
        pad: hides the other direction's half from all but those who know this one.
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
    """What a pair secret is bound to: the run, its algorithms, the roster, who, all public keys.

    Args:
        roster: digest of all identities in order, so that an index names an identity.
        one, other: index and public keys of the ends, in any order.
    """
    (low, key), (high, its) = sorted((one, other))
    ends = low.to_bytes(4, "big") + high.to_bytes(4, "big")
    return digest(b"parley/pair", fingerprint, roster, ends, key, its)


def compute_ciphertext_id(pair: bytes, sender: int, receiver: int, ciphertext: bytes) -> bytes:
    """Which ciphertext of which pair, and which way it goes."""
    ends = sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")
    return digest(b"parley/ciphertext", pair, ends, ciphertext)


def compute_confirmation_tag(secret: bytes, where: bytes) -> bytes:
    """What shows the receiver that it decapsulated what the sender encapsulated.

    Of the ML-KEM secret alone, so that its key can prove it false without any other secret.
    """
    return derive(secret, b"parley/kem confirm" + where)[:TAG_BYTES]


def is_confirmation_tag(secret: bytes, where: bytes, tag: bytes) -> bool:
    """Whether a tag is the one of that secret and place."""
    return is_equal_constant_time(compute_confirmation_tag(secret, where), tag)


def derive_direction_keys(exchanged: bytes, secret: bytes, where: bytes) -> DirectionKeys:
    """The keys of one direction: X25519's secret of the pair, ML-KEM's of this direction."""
    both = extract(exchanged, derive(secret, b"parley/kem secret"))
    return DirectionKeys(
        *(
            derive(both, b"parley/direction " + name + where)
            for name in (b"envelope", b"half", b"pad", b"root")
        )
    )


def derive_pair_base(first: bytes, second: bytes) -> bytes:
    """The base of a pair's mask in round 1, from the halves of the lower index and the higher."""
    return extract(b"parley/hybrid base", first + second)


def derive_pair_chain(first: bytes, second: bytes) -> bytes:
    """The pair's chain, from the roots of the lower index and the higher."""
    return extract(b"parley/hybrid chain", first + second)


def apply_pad(value: bytes, pad: bytes) -> bytes:
    """32 bytes hidden by a pad that hides nothing else, or found again by it."""
    return (int.from_bytes(value, "big") ^ int.from_bytes(pad, "big")).to_bytes(32, "big")


EdgeKeys = tuple[bytes, bytes, bytes]
"""(next chain, base, envelope key) of one pair and round."""

_Asked = TypeVarTuple("_Asked")
_Made = TypeVar("_Made")


def derive_next_chain(chain: bytes) -> bytes:
    """chain^r+1: one way."""
    return derive(chain, b"parley/next")


def derive_edge_keys(chain: bytes, number: int) -> EdgeKeys:
    """Keys of round `number` from the chain at that round."""
    where = number.to_bytes(4, "big")
    base, envelope = (derive(chain, name + where) for name in (b"parley/base", b"parley/envelope"))
    return derive_next_chain(chain), base, envelope


def derive_mask_key(base: bytes, plan: bytes) -> bytes:
    """k^r: who saw another plan has another mask, so its vector cannot be unmasked."""
    return derive(base, b"parley/mask" + plan)


def find_signers(
    statement: bytes, identities: tuple[bytes, ...], claimed: bytes, signatures: bytes
) -> NDArray[np.bool_]:
    """`[m]` who of the parties in the mask `claimed` signed `statement`, by `signatures`."""
    signed = unpack_mask(claimed, len(identities)).copy()
    pieces = [signatures[at : at + 64] for at in range(0, len(signatures), 64)]
    for i, piece in zip(np.flatnonzero(signed).tolist(), pieces, strict=True):
        signed[i] = is_valid_signature(identities[i], piece, statement)
    return signed


def with_revealed_beacon(run: RunParameters, committed: bytes, nonces: bytes) -> RunParameters:
    """The parameters with the beacon of the nonces of the parties in a mask."""
    revealed = split_nonces(run, committed, nonces)
    given = compute_commitments_digest(
        {i: compute_nonce_commitment(i, nonce) for i, nonce in revealed.items()}
    )
    if given != run.commitments:
        raise RemoteProtocolError("Expected the nonces that were committed to, got others.")
    return run.with_beacon(revealed)


class PairKeyComputer:
    """Computes everything itself and keeps nothing."""

    def compute_once(self, compute: Callable[[*_Asked], _Made], *arguments: *_Asked) -> _Made:
        """What a function gives, which parties of one process ask for with the same arguments."""
        return compute(*arguments)

    def compute_for_edge(self, compute: Callable[[*_Asked], _Made], *arguments: *_Asked) -> _Made:
        """The same of a secret of an edge, which its two ends ask for and nobody else."""
        return compute(*arguments)

    def agree_pair_secrets(
        self, private: bytes, exchanges: list[tuple[bytes, bytes]]
    ) -> list[bytes]:
        """chain^1 for each (peer key, salt)."""
        return agree(private, exchanges)

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        """(secret, ciphertext) for an ML-KEM key, from the operating system's entropy."""
        return encapsulate(public)

    def decapsulate(self, seed: bytes, ciphertexts: list[bytes]) -> list[bytes]:
        """The secret of each ciphertext."""
        return decapsulate(seed, ciphertexts)

    def clear(self, *, ciphertexts: bool = False) -> None:
        """Nothing is kept."""


class CachedPairKeyComputer(PairKeyComputer):
    """For parties of one process. What one end leaves the other takes away, so nothing stays.

    `clear` drops what nobody came for.
    """

    def __init__(self) -> None:
        self._cached: dict[Any, Any] = {}
        self._pairs: dict[bytes, bytes] = {}
        self._secrets: dict[bytes, bytes] = {}

    def compute_once(self, make: Callable[[*_Asked], _Made], *asked: *_Asked) -> _Made:
        """As in `PairKeyComputer`, made once."""
        if (make, asked) not in self._cached:
            self._cached[make, asked] = make(*asked)
        made: _Made = self._cached[make, asked]
        return made

    def compute_for_edge(self, make: Callable[[*_Asked], _Made], *asked: *_Asked) -> _Made:
        """As in `PairKeyComputer`, made for one end and forgotten with the other."""
        if (make, asked) in self._cached:
            made: _Made = self._cached.pop((make, asked))
        else:
            made = self._cached[make, asked] = make(*asked)
        return made

    def agree_pair_secrets(
        self, private: bytes, exchanges: list[tuple[bytes, bytes]]
    ) -> list[bytes]:
        """As in `PairKeyComputer`, one exchange an edge. The salt names the edge: it has both
        keys.
        """
        missing = [exchange for exchange in exchanges if exchange[1] not in self._pairs]
        mine = {salt for _, salt in missing}
        for (_, salt), secret in zip(missing, agree(private, missing), strict=True):
            self._pairs[salt] = secret
        return [
            self._pairs[salt] if salt in mine else self._pairs.pop(salt) for _, salt in exchanges
        ]

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        """As in `PairKeyComputer`; the other end finds the secret by the ciphertext."""
        secret, ciphertext = encapsulate(public)
        self._secrets[digest(b"parley/shared", public, ciphertext)] = secret
        return secret, ciphertext

    def decapsulate(self, seed: bytes, ciphertexts: list[bytes]) -> list[bytes]:
        """As in `PairKeyComputer`, but for what was encapsulated here, for this very key."""
        public = derive_kem_public_key(seed)
        known = [self._secrets.pop(digest(b"parley/shared", public, c), None) for c in ciphertexts]
        missing = [c for c, secret in zip(ciphertexts, known, strict=True) if secret is None]
        fresh = iter(decapsulate(seed, missing) if missing else ())
        return [next(fresh) if secret is None else secret for secret in known]

    def clear(self, *, ciphertexts: bool = False) -> None:
        """Forget what nobody came for; of `ciphertexts` only when none is on its way."""
        self._cached.clear()
        self._pairs.clear()
        if ciphertexts:
            self._secrets.clear()
