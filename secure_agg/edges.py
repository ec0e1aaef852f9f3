"""The keys of an edge, and who computes them.

By pair i, j and round r, all with domain-separated info:

    chain^1   = HKDF-Extract(salt = `hybrid.transcript` of the pair, X25519(i, j))
    chain^r+1 = HKDF-Expand(chain^r, "next")       a round's keys cannot be had from later state
    base^r, envelope^r = HKDF-Expand(chain^r, purpose ‖ r)
    k^r       = HKDF-Expand(base^r, "mask" ‖ digest of the round's plan)

A hybrid run has other chains and another base^1 (`hybrid`), from ML-KEM-768 too.

Both ends of an edge derive the same bytes. A party alone uses `EdgeWork`; parties of one process
share a `SharedEdgeWork`, which does for one end what the other end has done already: same bytes,
half the work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.beacon import commitment, commitments_digest
from parley.secure_agg.codec import nonces_by_party
from parley.secure_agg.flags import unpack_mask
from parley.secure_agg.hybrid import Direction, direction
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import (
    agree,
    decapsulate,
    derive,
    digest,
    encapsulate,
    kem_public,
    verifies,
)

EdgeKeys = tuple[bytes, bytes, bytes]
"""(next chain, base, envelope key) of one pair and round."""


def next_chain(chain: bytes) -> bytes:
    """chain^r+1: one way."""
    return derive(chain, b"parley/next")


def mask_key(base: bytes, plan: bytes) -> bytes:
    """k^r: who saw another plan has another mask, so its vector cannot be unmasked."""
    return derive(base, b"parley/mask" + plan)


class EdgeWork:
    """Computes everything itself and keeps nothing."""

    def verifies(self, identity: bytes, signature: bytes, message: bytes) -> bool:
        """Whether the signature holds."""
        return verifies(identity, signature, message)

    def signers(
        self, statement: bytes, identities: tuple[bytes, ...], claimed: bytes, signatures: bytes
    ) -> NDArray[np.bool_]:
        """`[m]` who of the parties in the mask `claimed` signed `statement`, by `signatures`."""
        signed = unpack_mask(claimed, len(identities)).copy()
        pieces = [signatures[at : at + 64] for at in range(0, len(signatures), 64)]
        for i, piece in zip(np.flatnonzero(signed).tolist(), pieces, strict=True):
            signed[i] = verifies(identities[i], piece, statement)
        return signed

    def with_beacon(self, run: RunParameters, committed: bytes, nonces: bytes) -> RunParameters:
        """The parameters with the beacon of the nonces of the parties in a mask.

        Raises:
            RemoteProtocolError: not the nonces that the parameters have the commitments of.
        """
        revealed = nonces_by_party(run, committed, nonces)
        given = commitments_digest({i: commitment(i, nonce) for i, nonce in revealed.items()})
        if given != run.commitments:
            raise RemoteProtocolError(
                "Expected the nonces that were committed to, got some with other commitments."
            )
        return run.with_beacon(revealed)

    def pair_secrets(self, private: bytes, exchanges: list[tuple[bytes, bytes]]) -> list[bytes]:
        """chain^1 for each (peer key, salt).

        Raises:
            ValueError: a peer key of small order.
        """
        return agree(private, exchanges)

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        """(secret, ciphertext) for an ML-KEM key, from the operating system's entropy.

        Raises:
            ValueError: no such key.
        """
        return encapsulate(public)

    def decapsulate(self, seed: bytes, ciphertexts: list[bytes]) -> list[bytes]:
        """The secret of each ciphertext."""
        return decapsulate(seed, ciphertexts)

    def direction(self, exchanged: bytes, secret: bytes, where: bytes) -> Direction:
        """The keys of one direction of a pair."""
        return direction(exchanged, secret, where)

    def edge_keys(self, chain: bytes, number: int) -> EdgeKeys:
        """Keys of round `number` from the chain at that round."""
        where = number.to_bytes(4, "big")
        return (
            next_chain(chain),
            derive(chain, b"parley/base" + where),
            derive(chain, b"parley/envelope" + where),
        )

    def mask_key(self, base: bytes, plan: bytes) -> bytes:
        """k^r."""
        return mask_key(base, plan)


class SharedEdgeWork(EdgeWork):
    """For parties of one process. What one end leaves the other takes away, so nothing stays.

    `clear` drops what nobody came for (edges to parties elsewhere).
    """

    def __init__(self) -> None:
        self._verified: set[tuple[bytes, bytes, bytes]] = set()
        self._signers: tuple[object, NDArray[np.bool_]] = (None, np.empty(0, dtype=bool))
        self._beacon: tuple[object, RunParameters] | None = None
        self._pairs: dict[bytes, bytes] = {}
        self._edges: dict[bytes, EdgeKeys] = {}
        self._masks: dict[tuple[bytes, bytes], bytes] = {}
        self._secrets: dict[bytes, bytes] = {}
        self._directions: dict[tuple[bytes, bytes, bytes], Direction] = {}

    def verifies(self, identity: bytes, signature: bytes, message: bytes) -> bool:
        """As in `EdgeWork`; a signature that held is not verified again."""
        if (identity, signature, message) in self._verified:
            return True
        if not verifies(identity, signature, message):
            return False
        self._verified.add((identity, signature, message))
        return True

    def signers(
        self, statement: bytes, identities: tuple[bytes, ...], claimed: bytes, signatures: bytes
    ) -> NDArray[np.bool_]:
        """As in `EdgeWork`, once for parties that were sent the same."""
        asked = (statement, identities, claimed, signatures)
        if self._signers[0] != asked:
            self._signers = (asked, super().signers(*asked))
        return self._signers[1]

    def with_beacon(self, run: RunParameters, committed: bytes, nonces: bytes) -> RunParameters:
        """As in `EdgeWork`, once for parties that were sent the same."""
        asked = (run, committed, nonces)
        if self._beacon is None or self._beacon[0] != asked:
            self._beacon = (asked, super().with_beacon(*asked))
        return self._beacon[1]

    def pair_secrets(self, private: bytes, exchanges: list[tuple[bytes, bytes]]) -> list[bytes]:
        """As in `EdgeWork`, one exchange an edge. The salt names the edge: it has both keys."""
        missing = [exchange for exchange in exchanges if exchange[1] not in self._pairs]
        fresh = agree(private, missing)
        for (_, salt), secret in zip(missing, fresh, strict=True):
            self._pairs[salt] = secret
        mine = {salt for _, salt in missing}
        return [
            self._pairs[salt] if salt in mine else self._pairs.pop(salt) for _, salt in exchanges
        ]

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        """As in `EdgeWork`; the other end finds the secret by the ciphertext."""
        secret, ciphertext = super().encapsulate(public)
        self._secrets[digest(b"parley/shared", public, ciphertext)] = secret
        return secret, ciphertext

    def decapsulate(self, seed: bytes, ciphertexts: list[bytes]) -> list[bytes]:
        """As in `EdgeWork`, but for what was encapsulated here, for this very key."""
        public = kem_public(seed)
        known = [self._secrets.pop(digest(b"parley/shared", public, c), None) for c in ciphertexts]
        missing = [c for c, secret in zip(ciphertexts, known, strict=True) if secret is None]
        fresh = iter(super().decapsulate(seed, missing) if missing else ())
        return [next(fresh) if secret is None else secret for secret in known]

    def direction(self, exchanged: bytes, secret: bytes, where: bytes) -> Direction:
        """As in `EdgeWork`, once for both ends."""
        asked = (exchanged, secret, where)
        known = self._directions.pop(asked, None)
        if known is None:
            known = self._directions[asked] = super().direction(*asked)
        return known

    def edge_keys(self, chain: bytes, number: int) -> EdgeKeys:
        """As in `EdgeWork`. A chain serves one round, so it names the edge and the round."""
        known = self._edges.pop(chain, None)
        if known is None:
            known = self._edges[chain] = super().edge_keys(chain, number)
        return known

    def mask_key(self, base: bytes, plan: bytes) -> bytes:
        """As in `EdgeWork`."""
        known = self._masks.pop((base, plan), None)
        if known is None:
            known = self._masks[base, plan] = mask_key(base, plan)
        return known

    def clear(self) -> None:
        """Forget every secret, but for those of ciphertexts that are on their way.

        A secret is taken away with its ciphertext; `forget_ciphertexts` drops the rest.
        """
        self._verified.clear()
        self._pairs.clear()
        self._edges.clear()
        self._masks.clear()

    def forget_ciphertexts(self) -> None:
        """Forget what nobody came for."""
        self._secrets.clear()
        self._directions.clear()
