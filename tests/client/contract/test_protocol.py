import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.client.contract.protocol import (
    REQUESTS,
    Frame,
    WireError,
    decode_frame,
    encode_frame,
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_FRAMES = st.builds(
    Frame,
    kind=st.sampled_from(sorted(REQUESTS)),
    head=st.dictionaries(st.text(max_size=8), _JSON, max_size=4),
    blobs=st.lists(st.binary(max_size=40), max_size=4).map(tuple),
)


@given(_FRAMES)
def test_a_frame_comes_back_as_it_went(frame):
    assert decode_frame(encode_frame(frame)) == frame


@given(st.binary(max_size=200))
def test_random_bytes_are_a_wire_error_never_a_crash(data):
    with pytest.raises(WireError):
        decode_frame(data)


@given(_FRAMES, st.data())
def test_a_frame_with_a_byte_too_many_few_or_other_never_crashes(frame, data):
    whole = encode_frame(frame)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        decode_frame(whole[:cut])
    with pytest.raises(WireError):
        decode_frame(whole + b"\0")
    changed = bytearray(whole)
    changed[cut] ^= data.draw(st.integers(1, 255))
    with suppress(WireError):
        decode_frame(bytes(changed))


def test_a_length_asks_for_no_memory_that_is_not_there():
    head = json.dumps({"kind": "finish", "head": {}, "blobs": [2**60]}).encode()
    with pytest.raises(WireError, match=r"Expected .* bytes in a frame"):
        decode_frame(b"PLY1" + len(head).to_bytes(4, "big") + head)
    with pytest.raises(WireError, match="head of at most"):
        decode_frame(b"PLY1" + b"\xff\xff\xff\xff" + head)


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"finish","head":{"a":NaN},"blobs":[]}',
        '{"kind":"finish","head":{"a":1e999},"blobs":[]}',
        '{"kind":"finish","head":{"a":1,"a":2},"blobs":[]}',
        "[" * 100_000,
    ],
)
def test_a_head_that_is_not_strict_json_is_refused(text):
    head = text.encode()
    with pytest.raises(WireError):
        decode_frame(b"PLY1" + len(head).to_bytes(4, "big") + head)


def test_a_frame_shows_no_blob_in_its_repr():
    assert "secret" not in repr(Frame(kind="finish", head={}, blobs=(b"secret",)))
