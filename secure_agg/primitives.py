"""Every cryptographic call of secure aggregation, each with why it is safe.

X25519 (RFC 7748), Ed25519 (RFC 8032), HKDF-SHA256 (RFC 5869), AES-256-GCM (NIST SP 800-38D).
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KEY_BYTES", "Entropy", "agree", "derive", "digest", "expand_seed", "keystream_cipher"]
__all__ += ["mac", "mac_matches", "public_key", "seal", "sign", "signing_public", "unseal"]
__all__ += ["verifies"]

Entropy = Callable[[int], bytes]
"""n to n fresh bytes: `os.urandom`, or `expand_seed` in a simulation."""
KEY_BYTES = 32


def digest(tag: bytes, *parts: bytes) -> bytes:
    """SHA-256 of length-prefixed parts: no two part lists, and no two tags, collide by joining."""
    framed = [len(p).to_bytes(8, "big") + p for p in (tag, *parts)]
    return hashlib.sha256(b"".join(framed)).digest()


def derive(key: bytes, info: bytes) -> bytes:
    """HKDF-Expand's first block: HMAC(key, info ‖ 1). The key is uniform; infos differ by tag."""
    return hmac.digest(key, info + b"\x01", "sha256")


def agree(private: bytes, exchanges: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """X25519 with each (peer key, salt), then HKDF-Extract; salts bind the run and both keys.

    A peer key of small order raises ValueError: a secret always depends on both private keys.
    """
    mine = X25519PrivateKey.from_private_bytes(private)  # costs three exchanges, so once for all
    shared = ((mine.exchange(X25519PublicKey.from_public_bytes(p)), salt) for p, salt in exchanges)
    return [hmac.digest(salt, secret, "sha256") for secret, salt in shared]


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
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def mac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 cut to 128 bits: a forgery succeeds with probability 2^−128 a try."""
    return hmac.digest(key, message, "sha256")[:16]


def mac_matches(expected: bytes, got: bytes) -> bool:
    """In constant time: how long it takes says nothing about the valid MAC."""
    return hmac.compare_digest(expected, got)


def seal(key: bytes, sender: int, plaintext: bytes, bound_to: bytes) -> bytes:
    """AES-256-GCM. A key serves one pair and round, once each way; the sender is the nonce."""
    return AESGCM(key).encrypt(sender.to_bytes(12, "big"), plaintext, bound_to)


def unseal(key: bytes, sender: int, sealed: bytes, bound_to: bytes) -> bytes | None:
    """The plaintext, or None unless it is `sender`'s, for this key, bound to `bound_to`."""
    try:
        return AESGCM(key).decrypt(sender.to_bytes(12, "big"), sealed, bound_to)
    except (InvalidTag, ValueError):
        return None


def keystream_cipher(key: bytes) -> AESGCM:
    """AES-256-GCM, for masks: over zeros it *is* the AES-256-CTR keystream from nonce ‖ 2.

    It has OpenSSL's widest vector code. Safe because the key serves one mask, every piece has a
    nonce of its own, far below GCM's 64 GiB: no counter block repeats. The tag is overwritten
    and never leaves the process.
    """
    return AESGCM(key)


def expand_seed(seed: bytes) -> Entropy:
    """A source for simulations and public choices, NOT entropy: SHAKE-256(tag ‖ seed ‖ call)."""
    calls = iter(range(2**63))  # a number for each call, so that no two overlap

    def draw(count: int) -> bytes:
        call = next(calls).to_bytes(8, "big")
        return hashlib.shake_256(b"parley/simulated entropy" + seed + call).digest(count)

    return draw
