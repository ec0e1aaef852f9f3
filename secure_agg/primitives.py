"""Cryptographic primitives of secure aggregation, each with the reason why its use is safe.

X25519 (RFC 7748), ML-KEM-768 (FIPS 203), Ed25519 (RFC 8032), HKDF-SHA256 (RFC 5869), AES-256-GCM
(NIST SP 800-38D) and AES-256-CTR (NIST SP 800-38A).
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from time import perf_counter
from typing import TypeVar

import cryptography
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

try:
    from cryptography.hazmat.primitives.asymmetric import mlkem
except ImportError:  # older than the version that pyproject.toml requires
    mlkem = None  # type: ignore[assignment]

Entropy = Callable[[int], bytes]
"""Function from n to n fresh bytes: `os.urandom`, or `expand_seed` in a simulation."""
KEY_BYTES = 32
KEM_SEED_BYTES, KEM_PUBLIC_BYTES, KEM_CIPHERTEXT_BYTES = 64, 1184, 1088
"""Bytes in ML-KEM-768 of the private key's seed d ‖ z, the public key, a ciphertext."""
PUBLIC_KEY_BYTES = KEY_BYTES + KEM_PUBLIC_BYTES
"""Bytes of a party's public keys of a run: X25519's, then ML-KEM-768's."""


_Made = TypeVar("_Made")


class AlgorithmMissing(RuntimeError):
    """The installed library lacks an algorithm of the run; the message names a version with it."""


def digest(tag: bytes, *parts: bytes) -> bytes:
    """Return SHA-256 of length-prefixed parts: different part lists or tags never give the same
    input.
    """
    framed = b"".join([len(p).to_bytes(8, "big") + p for p in (tag, *parts)])
    return hashlib.sha256(framed).digest()


def derive(key: bytes, info: bytes) -> bytes:
    """Return HKDF-Expand's first block, HMAC(key, info ‖ 1). The key is uniform; infos differ by
    tag.
    """
    return hmac.digest(key, info + b"\x01", "sha256")


def extract(salt: bytes, secret: bytes) -> bytes:
    """Return HKDF-Extract, HMAC(salt, secret): uniform if either is secret and uniform (a dual
    PRF).
    """
    return hmac.digest(salt, secret, "sha256")


def is_equal_constant_time(one: bytes, other: bytes) -> bool:
    """Return whether two tags are equal; the time taken does not reveal where they differ."""
    return hmac.compare_digest(one, other)


def agree(private: bytes, exchanges: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Compute X25519 with each peer of (peer, salt), then HKDF-Extract.

    Raises:
        ValueError: a peer's key has small order.
    """
    mine = X25519PrivateKey.from_private_bytes(private)  # costs three exchanges, so load it once
    shared = ((mine.exchange(X25519PublicKey.from_public_bytes(p)), salt) for p, salt in exchanges)
    return [extract(salt, secret) for secret, salt in shared]


def is_weak(peer: bytes) -> bool:
    """Return whether an X25519 key has small order: then each shared secret with it is zero."""
    with suppress(ValueError):
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(peer))
        return False
    return True


def derive_public_key(private: bytes) -> bytes:
    """Return the X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def derive_kem_public_key(seed: bytes) -> bytes:
    """Return the ML-KEM-768 public key of a seed of 64 bytes."""
    return _call_kem(
        lambda: mlkem.MLKEM768PrivateKey.from_seed_bytes(seed).public_key()
    ).public_bytes_raw()


def is_kem_public_key(public: bytes) -> bool:
    """Return whether the bytes are an ML-KEM-768 public key (FIPS 203, section 7.2)."""
    with suppress(ValueError):
        _load_kem_public_key(public)
        return True
    return False


def encapsulate(public: bytes) -> tuple[bytes, bytes]:
    """Return (secret of 32 bytes, ciphertext) from the operating system's entropy; no seed is
    accepted.

    Raises:
        ValueError: not an ML-KEM-768 public key.
        AlgorithmMissing: the installed library has no ML-KEM.
    """
    return _load_kem_public_key(public).encapsulate()


def decapsulate(seed: bytes, ciphertexts: Sequence[bytes]) -> list[bytes]:
    """Return a secret for each ciphertext. A ciphertext for another key gives some other secret."""
    # Takes 0.1 ms: load it once.
    private = _call_kem(lambda: mlkem.MLKEM768PrivateKey.from_seed_bytes(seed))
    return [private.decapsulate(ciphertext) for ciphertext in ciphertexts]


@lru_cache(maxsize=1024)  # public keys; parties of one process share neighbours
def _load_kem_public_key(public: bytes) -> "mlkem.MLKEM768PublicKey":
    return _call_kem(lambda: mlkem.MLKEM768PublicKey.from_public_bytes(public))


def _call_kem(call: Callable[[], _Made]) -> _Made:
    if mlkem is not None:
        with suppress(UnsupportedAlgorithm):
            return call()
    raise AlgorithmMissing(
        "Expected a cryptography library with ML-KEM-768 (the wheels of cryptography 50 and later "
        f"have it), got cryptography {cryptography.__version__} without it. Install one of these "
        "wheels, for example: pip install --upgrade 'cryptography>=50'"
    )


def derive_signing_public_key(private: bytes) -> bytes:
    """Return the Ed25519 public key of 32 private bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, message: bytes) -> bytes:
    """Sign with Ed25519: deterministic, so a bad random generator cannot leak the identity key."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(message)


def is_valid_signature(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether `signature` is a signature of `message` under the key `public`."""
    with suppress(InvalidSignature, ValueError):
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        return True
    return False


def compute_share_digest(share: bytes) -> bytes:
    """Return 16 bytes to compare a share with. A share has 256 random bits, so they reveal none of
    it.
    """
    return hashlib.sha256(share).digest()[:16]


def seal(key: bytes, sender: int, plaintext: bytes, bound_to: bytes) -> bytes:
    """Encrypt with AES-256-GCM. A key serves one pair and round, once per direction; nonce: the
    sender.
    """
    return AESGCM(key).encrypt(sender.to_bytes(12, "big"), plaintext, bound_to)


def unseal(key: bytes, sender: int, sealed: bytes, bound_to: bytes) -> bytes | None:
    """Return the plaintext, or None unless `sender` sealed it with this key and `bound_to`."""
    with suppress(InvalidTag, ValueError):
        return AESGCM(key).decrypt(sender.to_bytes(12, "big"), sealed, bound_to)
    return None


def build_keystream(key: bytes, size: int) -> Callable[[bytes, memoryview, memoryview], object]:
    """Return a function of nonce, zeros and target that writes AES-256-CTR from block `nonce ‖ 2`.

    The target has 16 bytes more than the zeros. AES-256-GCM over zeros is that keystream plus a
    tag; the tag is overwritten and never leaves the process. For a mask of `size` bytes the faster
    of the two calls is used; their bytes are the same.

    Safe: the key serves one mask. Each piece has its own nonce and is far below GCM's 64 GiB, so no
    counter block repeats.
    """
    if size <= _ONE_CALL_BYTES or _is_gcm_faster():
        return _build_gcm_stream(key)
    return _build_counter_stream(key)


_ONE_CALL_BYTES = 1 << 14
"""Size below which GCM is faster on each measured processor: counter mode costs 4 µs more per key.
"""


_COUNTER_MODE = modes.CTR(bytes(16))  # its counter is reset for each piece


def _build_gcm_stream(key: bytes) -> Callable[[bytes, memoryview, memoryview], object]:
    encrypt_into = AESGCM(key).encrypt_into
    return lambda nonce, zeros, target: encrypt_into(nonce, zeros, None, target)


def _build_counter_stream(key: bytes) -> Callable[[bytes, memoryview, memoryview], object]:
    stream = Cipher(algorithms.AES256(key), _COUNTER_MODE).encryptor()

    def fill(nonce: bytes, zeros: memoryview, target: memoryview) -> None:
        stream.reset_nonce(nonce + b"\x00\x00\x00\x02")
        stream.update_into(zeros, target)

    return fill


@cache
def _is_gcm_faster() -> bool:
    """Return whether GCM is faster for long masks on this processor.

    With AVX-512 it was faster by a third, without it half as fast.
    """
    zeros, target = memoryview(bytes(1 << 16)), memoryview(bytearray((1 << 16) + 16))

    def seconds(fill: Callable[[bytes, memoryview, memoryview], object]) -> float:
        start = perf_counter()
        fill(bytes(12), zeros, target)
        return perf_counter() - start

    gcm, counter_mode = _build_gcm_stream(bytes(32)), _build_counter_stream(bytes(32))
    return min(seconds(gcm) for _ in range(5)) < min(seconds(counter_mode) for _ in range(5))


def expand_seed(seed: bytes) -> Entropy:
    """Return a source for simulations and public choices, NOT entropy: SHAKE-256(tag ‖ seed ‖
    call).
    """
    start = b"parley/simulated entropy" + seed
    calls = (n.to_bytes(8, "big") for n in range(2**63))  # numbered, so that no two overlap
    return lambda count: hashlib.shake_256(start + next(calls)).digest(count)
