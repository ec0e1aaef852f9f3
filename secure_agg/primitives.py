"""Every cryptographic call of secure aggregation, each with why it is safe.

X25519 (RFC 7748), Ed25519 (RFC 8032), HKDF-SHA256 (RFC 5869), AES-256-GCM (NIST SP 800-38D).
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable
from contextlib import suppress

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KEY_BYTES", "Entropy", "agree", "derive", "digest", "expand_seed", "keystream_cipher"]
__all__ += ["is_weak", "public_key", "seal", "share_digest", "sign", "signing_public"]
__all__ += ["unseal", "verifies"]

Entropy = Callable[[int], bytes]
"""n to n fresh bytes: `os.urandom`, or `expand_seed` in a simulation."""
KEY_BYTES = 32


def digest(tag: bytes, *parts: bytes) -> bytes:
    """SHA-256 of length-prefixed parts: no two part lists, and no two tags, collide by joining."""
    framed = b"".join([len(p).to_bytes(8, "big") + p for p in (tag, *parts)])
    return hashlib.sha256(framed).digest()


def derive(key: bytes, info: bytes) -> bytes:
    """HKDF-Expand's first block: HMAC(key, info ‖ 1). The key is uniform; infos differ by tag."""
    return hmac.digest(key, info + b"\x01", "sha256")


def agree(private: bytes, exchanges: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """X25519 with each (peer, salt), then HKDF-Extract. ValueError at a peer of small order."""
    mine = X25519PrivateKey.from_private_bytes(private)  # costs three exchanges, so once for all
    shared = ((mine.exchange(X25519PublicKey.from_public_bytes(p)), salt) for p, salt in exchanges)
    return [hmac.digest(salt, secret, "sha256") for secret, salt in shared]


def is_weak(peer: bytes) -> bool:
    """Whether an X25519 key has small order: whatever it is agreed with, the secret is zero."""
    with suppress(ValueError):
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(peer))
        return False
    return True


def public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def signing_public(private: bytes) -> bytes:
    """The Ed25519 public key of 32 private bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, message: bytes) -> bytes:
    """Ed25519: deterministic, so a bad random generator cannot leak the identity key."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(message)


def verifies(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature is `public`'s over `message`."""
    with suppress(InvalidSignature, ValueError):
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        return True
    return False


def share_digest(share: bytes) -> bytes:
    """16 bytes that a share is held against. It has 256 random bits, so they say nothing of it."""
    return hashlib.sha256(share).digest()[:16]


def seal(key: bytes, sender: int, plaintext: bytes, bound_to: bytes) -> bytes:
    """AES-256-GCM. A key serves one pair and round, once each way; the sender is the nonce."""
    return AESGCM(key).encrypt(sender.to_bytes(12, "big"), plaintext, bound_to)


def unseal(key: bytes, sender: int, sealed: bytes, bound_to: bytes) -> bytes | None:
    """The plaintext, or None unless it is `sender`'s, for this key, bound to `bound_to`."""
    with suppress(InvalidTag, ValueError):
        return AESGCM(key).decrypt(sender.to_bytes(12, "big"), sealed, bound_to)
    return None


def keystream_cipher(key: bytes) -> AESGCM:
    """AES-256-GCM, for masks: over zeros it *is* the AES-256-CTR keystream from nonce ‖ 2.

    Safe: the key serves one mask, and every piece has a nonce of its own and is far below GCM's
    64 GiB, so no counter block repeats. The tag is overwritten and never leaves the process.
    """
    return AESGCM(key)


def expand_seed(seed: bytes) -> Entropy:
    """A source for simulations and public choices, NOT entropy: SHAKE-256(tag ‖ seed ‖ call)."""
    start = b"parley/simulated entropy" + seed
    calls = (n.to_bytes(8, "big") for n in range(2**63))  # numbered, so that no two overlap
    return lambda count: hashlib.shake_256(start + next(calls)).digest(count)
