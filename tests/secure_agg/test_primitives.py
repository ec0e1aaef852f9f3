"""The cryptographic calls against published vectors; masks and secret sharing made of them."""

import hashlib
import hmac
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from one_mask import mask_of

from parley.secure_agg.mask_expansion import PIECE_BYTES, add_masks, add_shared_masks
from parley.secure_agg.primitives import (
    agree,
    build_keystream,
    derive,
    derive_public_key,
    derive_signing_public_key,
    digest,
    expand_seed,
    is_valid_signature,
    is_weak,
    seal,
    sign,
    unseal,
)
from parley.secure_agg.shamir import combine, split


def test_key_agreement_is_x25519_of_rfc_7748_section_6_1():
    alice = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert derive_public_key(bob) == bytes.fromhex(
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    )
    assert agree(bob, [(alice, b"salt")]) == [hmac.digest(b"salt", shared, "sha256")]


def test_a_key_of_small_order_is_refused():
    with pytest.raises(ValueError):
        agree(bytes(range(32)), [(bytes(32), b"s")])
    assert is_weak(bytes(32))
    assert is_weak(b"\x01" + bytes(31))
    assert not is_weak(derive_public_key(bytes(range(32))))


def test_derive_is_the_first_block_of_hkdf_expand_of_rfc_5869():
    prk = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    info = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9")
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    assert derive(prk, info).hex() == expected


def test_signatures_are_ed25519_of_rfc_8032_section_7_1():
    private = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert derive_signing_public_key(private).hex() == public
    assert sign(private, b"").hex() == signature
    assert is_valid_signature(bytes.fromhex(public), bytes.fromhex(signature), b"")
    assert not is_valid_signature(bytes.fromhex(public), bytes.fromhex(signature), b"x")
    assert not is_valid_signature(b"short", bytes.fromhex(signature), b"")


@pytest.mark.parametrize("gcm", [True, False])
@pytest.mark.parametrize("size", [1000, 1 << 18])
def test_the_keystream_is_aes_256_ctr_from_nonce_and_two_by_either_call(size, gcm, monkeypatch):
    monkeypatch.setattr("parley.secure_agg.primitives._is_gcm_faster", lambda: gcm)
    key = bytes(range(32))
    expand, out = build_keystream(key, size), bytearray(size + 16)
    for piece in (7, 0):  # in any order
        nonce = piece.to_bytes(12, "big")
        expand(nonce, memoryview(bytes(size)), memoryview(out))
        counter = Cipher(algorithms.AES(key), modes.CTR(nonce + b"\x00\x00\x00\x02"))
        assert out[:size] == counter.encryptor().update(bytes(size))


def test_what_is_sealed_opens_only_for_its_sender_key_and_place():
    sealed = seal(b"k" * 32, 3, b"secret", b"place")
    assert unseal(b"k" * 32, 3, sealed, b"place") == b"secret"
    assert unseal(b"k" * 32, 4, sealed, b"place") is None
    assert unseal(b"l" * 32, 3, sealed, b"place") is None
    assert unseal(b"k" * 32, 3, sealed, b"other") is None
    assert unseal(b"k" * 32, 3, sealed[:-1] + b"\x00", b"place") is None
    assert unseal(b"k" * 32, 3, b"", b"place") is None


def test_digests_of_different_parts_differ():
    values = {digest(b"t", b"ab"), digest(b"t", b"a", b"b"), digest(b"ta", b"b"), digest(b"t")}
    assert len(values) == 4


def test_an_expanded_seed_repeats_and_never_overlaps():
    first, second = expand_seed(b"s"), expand_seed(b"s")
    draws = [first(32) for _ in range(3)]
    assert draws == [second(32) for _ in range(3)]
    assert len(set(draws)) == 3
    assert draws[0] == hashlib.shake_256(b"parley/simulated entropy" + b"s" + bytes(8)).digest(32)


KEY = bytes(range(32))


def _by_counter_mode(key, size):
    out = b""
    for piece in range(-(-size // PIECE_BYTES)):
        counter = piece.to_bytes(12, "big") + b"\x00\x00\x00\x02"
        encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
        out += encryptor.update(bytes(min(PIECE_BYTES, size - piece * PIECE_BYTES)))
    return out


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("size", [1, 3, 100, 65_536, 65_537, 150_001])
def test_a_mask_is_the_aes_256_ctr_keystream_piece_by_piece(dtype, size):
    mask = mask_of(KEY, size, np.dtype(dtype))
    assert mask.astype(mask.dtype.newbyteorder("<")).tobytes() == _by_counter_mode(
        KEY, size * mask.itemsize
    )


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 6),
    size=st.sampled_from([1, 7, 65_536, 70_000]),
    dtype=st.sampled_from([np.uint16, np.uint32, np.uint64]),
    data=st.data(),
)
def test_shared_edges_give_the_same_vectors_as_each_row_alone(rows, size, dtype, data):
    pairs = [(i, j) for i in range(rows) for j in range(rows) if i < j]
    edges = [(i, j, bytes([i, j]) * 16) for i, j in pairs if data.draw(st.booleans())]
    alone = [(i, data.draw(st.sampled_from([1, -1])), bytes([9, i]) * 16) for i in range(rows)]
    start = np.arange(rows * size, dtype=dtype).reshape(rows, size)
    together = [row.copy() for row in start]
    add_shared_masks(together, alone, edges)
    for i in range(rows):
        plus = [k for a, _, k in edges if a == i] + [k for r, s, k in alone if (r, s) == (i, 1)]
        minus = [k for _, b, k in edges if b == i] + [k for r, s, k in alone if (r, s) == (i, -1)]
        row = start[i].copy()
        add_masks(row, plus, minus)
        assert np.array_equal(row, together[i])
    add_shared_masks([], [], [])


def _multiply(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = (a << 1) ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def test_shares_lie_on_one_polynomial_over_the_field_of_aes():
    # f(x) = 0x53 + 0xca·x: f(1) = 0x99, f(2) = 0x53 ^ (0xca·2) and so on, by hand.
    assert _multiply(0x53, 0xCA) == 1  # FIPS 197, section 4.2
    shares = {x: bytes([0x53 ^ _multiply(0xCA, x)]) for x in range(1, 6)}
    for pair in combinations(shares, 2):
        assert combine({x: shares[x] for x in pair}) == b"\x53"


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    secret=st.binary(min_size=1, max_size=40),
    count=st.integers(1, 60) | st.just(255),
)
def test_any_threshold_of_shares_gives_the_secret(data, secret, count):
    threshold = data.draw(st.integers(1, count))
    shares = split(secret, count, threshold, expand_seed(b"seed"))
    assert len(shares) == count
    chosen = data.draw(st.permutations(range(1, count + 1)))[:threshold]
    assert combine({x: shares[x - 1] for x in chosen}) == secret


@pytest.mark.parametrize("secret", [b"\x00", b"\xa7"])
@pytest.mark.parametrize("held", [(1, 2), (2, 4), (3, 4)])
def test_fewer_than_the_threshold_are_uniform_whatever_the_secret(secret, held):
    counts = Counter()
    entropy = expand_seed(b"uniform")
    for _ in range(8000):
        shares = split(secret, 4, 3, entropy)
        counts[shares[held[0] - 1][0] >> 5, shares[held[1] - 1][0] >> 5] += 1
    expected = 8000 / 64
    chi_square = sum((counts[a, b] - expected) ** 2 / expected for a in range(8) for b in range(8))
    assert chi_square < 63 + 6 * (2 * 63) ** 0.5


@pytest.mark.parametrize(("count", "threshold"), [(0, 0), (5, 0), (5, 6), (256, 3)])
def test_impossible_sharing_is_refused_with_the_numbers(count, threshold):
    with pytest.raises(ValueError, match=f"got threshold {threshold}, count {count}"):
        split(b"x", count, threshold, expand_seed(b""))


@pytest.mark.parametrize("shares", [{}, {0: b"a"}, {256: b"a"}, {1: b"a", 2: b"bc"}])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match="Expected shares of one length"):
        combine(shares)
