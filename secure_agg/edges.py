"""The keys of an edge, and who computes them.

By pair i, j and round r, all with domain-separated info:

    chain^1   = HKDF-Extract(salt = digest of run and both public keys, X25519(i, j))
    chain^r+1 = HKDF-Expand(chain^r, "next")       a round's keys cannot be had from later state
    base^r, envelope^r, confirm^r = HKDF-Expand(chain^r, purpose ‖ r)
    k^r       = HKDF-Expand(base^r, "mask" ‖ digest of the round's plan)

Both ends of an edge derive the same bytes. A party alone uses `EdgeWork`; parties of one process
share a `SharedEdgeWork`, which does for one end what the other end has done already: same bytes,
half the work.
"""

from __future__ import annotations

from secure_agg.primitives import agree, derive, digest, verifies

__all__ = ["EdgeKeys", "EdgeWork", "SharedEdgeWork", "mask_key", "pair_salt"]

EdgeKeys = tuple[bytes, bytes, bytes, bytes]
"""(next chain, base, envelope key, confirm key) of one pair and round."""


def pair_salt(fingerprint: bytes, key: bytes, other: bytes) -> bytes:
    """Binds a pair secret to the run and both keys, in an order that both ends agree on."""
    return digest(b"parley/pair", fingerprint, min(key, other), max(key, other))


def mask_key(base: bytes, plan: bytes) -> bytes:
    """k^r: who saw another plan has another mask, so its vector cannot be unmasked."""
    return derive(base, b"parley/mask" + plan)


class EdgeWork:
    """Computes everything itself and keeps nothing."""

    def verifies(self, identity: bytes, signature: bytes, message: bytes) -> bool:
        """Whether the signature holds."""
        return verifies(identity, signature, message)

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
            derive(chain, b"parley/next"),
            derive(chain, b"parley/base" + where),
            derive(chain, b"parley/envelope" + where),
            derive(chain, b"parley/confirm" + where),
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
        self._pairs.clear()
        self._edges.clear()
        self._masks.clear()
