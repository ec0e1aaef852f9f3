"""Every cryptographic call of secure aggregation, each with why it is safe.

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
except ImportError:  # older than the version that pyproject.toml asks for
    mlkem = None  # type: ignore[assignment]

Entropy = Callable[[int], bytes]
"""n to n fresh bytes: `os.urandom`, or `expand_seed` in a simulation."""
KEY_BYTES = 32
KEM_SEED_BYTES, KEM_PUBLIC_BYTES, KEM_CIPHERTEXT_BYTES = 64, 1184, 1088
PUBLIC_KEY_BYTES = KEY_BYTES + KEM_PUBLIC_BYTES
"""A party's public keys of a run: X25519's, then ML-KEM-768's."""
"""ML-KEM-768: the private key's seed d ‖ z, the public key, a ciphertext."""


_Made = TypeVar("_Made")


class AlgorithmMissing(RuntimeError):
    """The installed library cannot do what the run asks for; the message says which one can."""


def digest(tag: bytes, *parts: bytes) -> bytes:
    """SHA-256 of length-prefixed parts: no two part lists, and no two tags, collide by joining."""
    framed = b"".join([len(p).to_bytes(8, "big") + p for p in (tag, *parts)])
    return hashlib.sha256(framed).digest()


def derive(key: bytes, info: bytes) -> bytes:
    """HKDF-Expand's first block: HMAC(key, info ‖ 1). The key is uniform; infos differ by tag."""
    return hmac.digest(key, info + b"\x01", "sha256")


def extract(salt: bytes, secret: bytes) -> bytes:
    """HKDF-Extract: HMAC(salt, secret). Uniform where either is secret and uniform (a dual PRF)."""
    return hmac.digest(salt, secret, "sha256")


def is_equal_constant_time(one: bytes, other: bytes) -> bool:
    """Whether two tags are equal, in a time that does not say where they differ."""
    return hmac.compare_digest(one, other)


def agree(private: bytes, exchanges: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """X25519 with each (peer, salt), then HKDF-Extract. ValueError at a peer of small order."""
    mine = X25519PrivateKey.from_private_bytes(private)  # costs three exchanges, so once for all
    shared = ((mine.exchange(X25519PublicKey.from_public_bytes(p)), salt) for p, salt in exchanges)
    return [extract(salt, secret) for secret, salt in shared]


def is_weak(peer: bytes) -> bool:
    """Whether an X25519 key has small order: whatever it is agreed with, the secret is zero."""
    with suppress(ValueError):
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(peer))
        return False
    return True


def derive_public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def derive_kem_public_key(seed: bytes) -> bytes:
    """The ML-KEM-768 public key of a seed of 64 bytes."""
    return _call_kem(
        lambda: mlkem.MLKEM768PrivateKey.from_seed_bytes(seed).public_key()
    ).public_bytes_raw()


def is_kem_public_key(public: bytes) -> bool:
    """Whether these are the bytes of an ML-KEM-768 public key (FIPS 203, section 7.2)."""
    with suppress(ValueError):
        _load_kem_public_key(public)
        return True
    return False


def encapsulate(public: bytes) -> tuple[bytes, bytes]:
    """(secret of 32 bytes, ciphertext), from the operating system's entropy: no seed reaches it.

    Raises:
        ValueError: no ML-KEM-768 public key.
        AlgorithmMissing: the installed library has no ML-KEM.
    """
    return _load_kem_public_key(public).encapsulate()


def decapsulate(seed: bytes, ciphertexts: Sequence[bytes]) -> list[bytes]:
    """A secret for each ciphertext. One that was not made for this key gives some other secret."""
    private = _call_kem(
        lambda: mlkem.MLKEM768PrivateKey.from_seed_bytes(seed)
    )  # 0.1 ms: once for all
    return [private.decapsulate(ciphertext) for ciphertext in ciphertexts]


@lru_cache(maxsize=1024)  # public; parties of one process encapsulate to the same neighbours
def _load_kem_public_key(public: bytes) -> "mlkem.MLKEM768PublicKey":
    return _call_kem(lambda: mlkem.MLKEM768PublicKey.from_public_bytes(public))


def _call_kem(call: Callable[[], _Made]) -> _Made:
    if mlkem is not None:
        with suppress(UnsupportedAlgorithm):
            return call()
    raise AlgorithmMissing(
        "Expected a cryptography library with ML-KEM-768 (the wheels of cryptography 50 and later "
        f"have it), got cryptography {cryptography.__version__} without it: install that version, "
        "or agree on key-exchange x25519."
    )


def derive_signing_public_key(private: bytes) -> bytes:
    """The Ed25519 public key of 32 private bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, message: bytes) -> bytes:
    """Ed25519: deterministic, so a bad random generator cannot leak the identity key."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(message)


def is_valid_signature(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature is `public`'s over `message`."""
    with suppress(InvalidSignature, ValueError):
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        return True
    return False


def compute_share_digest(share: bytes) -> bytes:
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


def build_keystream(key: bytes, size: int) -> Callable[[bytes, memoryview, memoryview], object]:
    """AES-256-CTR from counter block `nonce ‖ 2`: a function of nonce, zeros, and where it goes.

    There is room for 16 bytes more than the zeros: AES-256-GCM over zeros is that keystream and a
    tag, which is overwritten and never leaves the process. For a mask of `size` bytes the faster of
    the two calls is taken; their bytes are the same.

    Safe: the key serves one mask, and every piece has its own nonce and is far below GCM's
    64 GiB, so no counter block repeats.
    """
    if size <= _ONE_CALL_BYTES or _is_gcm_faster():
        return _build_gcm_stream(key)
    return _build_counter_stream(key)


_ONE_CALL_BYTES = 1 << 14
"""Below it, GCM is faster on every processor measured: counter mode costs 4 µs more a key."""


_COUNTER_MODE = modes.CTR(bytes(16))  # its counter is set anew for every piece


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
    """On this processor, for long masks: it was by a third with AVX-512, half as fast without."""
    zeros, target = memoryview(bytes(1 << 16)), memoryview(bytearray((1 << 16) + 16))

    def seconds(fill: Callable[[bytes, memoryview, memoryview], object]) -> float:
        start = perf_counter()
        fill(bytes(12), zeros, target)
        return perf_counter() - start

    gcm, counter_mode = _build_gcm_stream(bytes(32)), _build_counter_stream(bytes(32))
    return min(seconds(gcm) for _ in range(5)) < min(seconds(counter_mode) for _ in range(5))


def expand_seed(seed: bytes) -> Entropy:
    """A source for simulations and public choices, NOT entropy: SHAKE-256(tag ‖ seed ‖ call)."""
    start = b"parley/simulated entropy" + seed
    calls = (n.to_bytes(8, "big") for n in range(2**63))  # numbered, so that no two overlap
    return lambda count: hashlib.shake_256(start + next(calls)).digest(count)
