"""Shamir's secret sharing over GF(256), byte by byte (Shamir 1979), field of AES (0x11b).

A secret is the value at 0 of a random polynomial of degree t − 1; share x is its value at x. Any t
shares determine the secret. Any t − 1 are uniform and independent of it. Here the first t − 1
shares are sampled directly, and the others are interpolated from them and the secret: the same
distribution, with fewer multiplications.

    >>> from parley.secure_agg.primitives import expand_seed
    >>> shares = split(b"secret", 5, 3, expand_seed(b"example"))
    >>> combine({1: shares[0], 3: shares[2], 5: shares[4]})
    b'secret'
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.primitives import Entropy

_Bytes = NDArray[np.uint8]


def _build_tables() -> tuple[_Bytes, NDArray[np.int64], _Bytes]:
    exp = np.zeros(512, dtype=np.uint8)
    log = np.zeros(256, dtype=np.int64)
    value = 1
    for power in range(255):
        exp[power] = exp[power + 255] = value
        log[value] = power
        value ^= value << 1  # times the generator 3
        if value & 0x100:
            value ^= 0x11B
    products = exp[log[:, None] + log[None, :]]
    products[0, :] = products[:, 0] = 0
    return exp, log, products.reshape(-1)


_EXP, _LOG, _PRODUCTS = _build_tables()  # product of a and b: _PRODUCTS[256·a + b]


def _compute_weights(points: NDArray[np.int64], targets: NDArray[np.int64]) -> _Bytes:
    """Return `[a, n]` Lagrange weights that give the values at `targets` from those at n `points`.

    The points are distinct, and none of `targets` is among them. Logarithms turn products into
    sums.
    """
    gaps = points[:, None] ^ points[None, :]
    np.fill_diagonal(gaps, 1)
    below = _LOG[gaps].sum(axis=1)
    ahead = _LOG[targets[:, None] ^ points[None, :]]
    result: _Bytes = _EXP[(ahead.sum(axis=1)[:, None] - ahead - below[None, :]) % 255]
    return result


def _apply(weights: NDArray[np.integer], values: _Bytes) -> _Bytes:
    """Multiply `[a, n]` by `[n, bytes]` over GF(256)."""
    index = (weights.astype(np.intp) << 8)[:, :, None] + values[None, :, :]
    result: _Bytes = np.bitwise_xor.reduce(_PRODUCTS[index], axis=1)
    return result


@lru_cache(maxsize=64)
def _compute_extension(count: int, threshold: int) -> _Bytes:
    """Return `[count − t + 1, t]` weights from (secret, shares 1..t−1) to shares t..count."""
    return _compute_weights(np.arange(threshold), np.arange(threshold, count + 1))


def split(secret: bytes, count: int, threshold: int, entropy: Entropy) -> list[bytes]:
    """Return shares 1..count of a secret, `len(secret)` bytes each."""
    if not 1 <= threshold <= count <= 255:
        raise ValueError(
            f"Expected 1 <= threshold <= count <= 255, got threshold {threshold}, count {count}."
        )
    size = len(secret)
    known = secret + entropy((threshold - 1) * size)
    values = np.frombuffer(known, dtype=np.uint8).reshape(threshold, size)
    derived = _apply(_compute_extension(count, threshold), values).tobytes()
    everything = known[size:] + derived
    return [everything[start : start + size] for start in range(0, count * size, size)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of shares by coordinate; correct only if at least t are given and all are
    true.
    """
    sizes = {len(share) for share in shares.values()}
    if len(sizes) != 1 or not all(1 <= x <= 255 for x in shares):
        raise ValueError(
            f"Expected shares of one length at 1..255, got {len(shares)} of {sorted(sizes)} bytes."
        )
    points = np.fromiter(shares, dtype=np.int64, count=len(shares))
    values = np.frombuffer(b"".join(shares.values()), dtype=np.uint8).reshape(len(shares), -1)
    return _apply(_compute_weights(points, np.zeros(1, dtype=np.int64)), values).tobytes()
