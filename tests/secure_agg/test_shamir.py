"""Tests of secret sharing."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.secure_agg.primitives import expand_seed
from parley.secure_agg.shamir import combine, split


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
@given(data=st.data(), secret=st.binary(min_size=1, max_size=40), count=st.integers(1, 60))
def test_any_threshold_of_shares_gives_the_secret(data, secret, count):
    threshold = data.draw(st.integers(1, count))
    shares = split(secret, count, threshold, expand_seed(b"seed"))
    assert len(shares) == count
    chosen = data.draw(st.permutations(range(1, count + 1)))[:threshold]
    assert combine({x: shares[x - 1] for x in chosen}) == secret


def test_255_shares_with_threshold_171_work():
    shares = split(b"0123456789abcdef" * 4, 255, 171, expand_seed(b"big"))
    assert combine({x: shares[x - 1] for x in range(85, 256)}) == b"0123456789abcdef" * 4


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
