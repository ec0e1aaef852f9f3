"""The keys of an edge, and who computes them.

By pair i, j and round r, all with domain-separated info:

    chain^1   = HKDF-Extract(salt = digest of run and both public keys, X25519(i, j))
    chain^r+1 = HKDF-Expand(chain^r, "next")       a round's keys cannot be had from later state
    base^r, envelope^r = HKDF-Expand(chain^r, purpose ‖ r)
    k^r       = HKDF-Expand(base^r, "mask" ‖ digest of the round's plan)

Both ends of an edge derive the same bytes. A party alone uses `EdgeWork`; parties of one process
share a `SharedEdgeWork`, which does for one end what the other end has done already: same bytes,
half the work.
"""

from __future__ import annotations

import numpy as np

from parley.secure_agg.beacon import commitment, commitments_digest
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.messages import nonces_by_party, unpack_mask
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.primitives import agree, derive, digest, verifies

__all__ = ["EdgeKeys", "EdgeWork", "SharedEdgeWork", "mask_key", "next_chain", "pair_salt"]

EdgeKeys = tuple[bytes, bytes, bytes]
"""(next chain, base, envelope key) of one pair and round."""


def pair_salt(fingerprint: bytes, key: bytes, other: bytes) -> bytes:
    """Binds a pair secret to the run and both keys, in an order that both ends agree on."""
    return digest(b"parley/pair", fingerprint, min(key, other), max(key, other))


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
    ) -> int:
        """How many of the parties in the mask `claimed` signed `statement`, by `signatures`."""
        places = np.flatnonzero(unpack_mask(claimed, len(identities))).tolist()
        pieces = [signatures[at : at + 64] for at in range(0, len(signatures), 64)]
        return sum(
            verifies(identities[i], piece, statement)
            for i, piece in zip(places, pieces, strict=True)
        )

    def with_beacon(self, run: RunParameters, committed: bytes, nonces: bytes) -> RunParameters:
        """The parameters with the beacon of the nonces of the parties in a mask.

        Raises:
            RemoteProtocolError: not the nonces that the parameters have the commitments of.
        """
        revealed = nonces_by_party(run, committed, nonces)
        given = commitments_digest({i: commitment(i, nonce) for i, nonce in revealed.items()})
        if given != run.commitments:
            raise RemoteProtocolError("Expected the nonces that were committed to, got others.")
        return run.with_beacon(revealed)

    def pair_secrets(self, private: bytes, exchanges: list[tuple[bytes, bytes]]) -> list[bytes]:
        """chain^1 for each (peer key, salt).

        Raises:
            ValueError: a peer key of small order.
        """
        return agree(private, exchanges)

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
        self._signers: tuple[object, int] = (None, 0)
        self._beacon: tuple[object, RunParameters] | None = None
        self._pairs: dict[bytes, bytes] = {}
        self._edges: dict[bytes, EdgeKeys] = {}
        self._masks: dict[tuple[bytes, bytes], bytes] = {}

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
    ) -> int:
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
        """Forget every secret."""
        self._verified.clear()
        self._pairs.clear()
        self._edges.clear()
        self._masks.clear()
