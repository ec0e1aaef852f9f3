"""Tests of the cryptographic calls against published vectors."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from parley.secure_agg.primitives import (
    agree,
    derive,
    digest,
    expand_seed,
    is_weak,
    keystream,
    public_key,
    seal,
    sign,
    signing_public,
    unseal,
    verifies,
)


def test_key_agreement_is_x25519_of_rfc_7748_section_6_1():
    alice = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert public_key(bob) == bytes.fromhex(
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    )
    assert agree(bob, [(alice, b"salt")]) == [hmac.digest(b"salt", shared, "sha256")]


def test_a_key_of_small_order_is_refused():
    with pytest.raises(ValueError):
        agree(bytes(range(32)), [(bytes(32), b"s")])
    assert is_weak(bytes(32))
    assert is_weak(b"\x01" + bytes(31))
    assert not is_weak(public_key(bytes(range(32))))


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
    assert signing_public(private).hex() == public
    assert sign(private, b"").hex() == signature
    assert verifies(bytes.fromhex(public), bytes.fromhex(signature), b"")
    assert not verifies(bytes.fromhex(public), bytes.fromhex(signature), b"x")
    assert not verifies(b"short", bytes.fromhex(signature), b"")


@pytest.mark.parametrize("gcm", [True, False])
@pytest.mark.parametrize("size", [1000, 1 << 18])
def test_the_keystream_is_aes_256_ctr_from_nonce_and_two_by_either_call(size, gcm, monkeypatch):
    monkeypatch.setattr("parley.secure_agg.primitives._gcm_is_faster", lambda: gcm)
    key = bytes(range(32))
    expand, out = keystream(key, size), bytearray(size + 16)
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
