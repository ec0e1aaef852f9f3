"""Tests of masks."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from one_mask import mask_of

from parley.secure_agg.masking import PIECE_BYTES, add_masks, add_shared_masks

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
