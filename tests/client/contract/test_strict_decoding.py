"""Frames and values: what becomes a fact, what is refused, and in which words."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.client.contract.feature_map_reference import parse_feature_map
from parley.client.contract.message_frames import (
    REQUESTS,
    MessageFrame,
    WireError,
    decode_frame,
    encode_frame,
)
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass, decode_value


class Side(StrEnum):
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, kw_only=True)
class Step:
    rate: float
    side: Side | None
    given: object = None
    rounds: int = 1

    def __post_init__(self):
        if self.rate < 0:
            raise ValueError("Expected rate >= 0.")


@pytest.mark.parametrize(
    ("hint", "value", "fact"),
    [
        (int, 2**63 - 1, 2**63 - 1),
        (float, 3, 3.0),
        (float, 2**999, 2.0**999),
        (bool, False, False),
        (str, "é" * 512, "é" * 512),
        (Side, "left", Side.LEFT),
        (Literal["a", "b"], "b", "b"),
        (float | None, None, None),
        (tuple[tuple[float, ...], ...], [[1, 2.5], []], ((1.0, 2.5), ())),
        (Mapping[str, tuple[int, ...]], {"a": [1]}, {"a": (1,)}),
    ],
)
def test_a_value_of_its_type_is_a_fact(hint, value, fact):
    decoded = decode_value(hint, value, "x")
    assert (decoded, type(decoded)) == (fact, type(fact))


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (int, [True, 1.0, "1", None, 2**63, -(2**63), [1]]),
        (float, [True, "1", None, math.nan, math.inf, 2**1000, 1e302, 10**400]),
        (bool, [0, 1, "true", None]),
        (str, [1, None, "x" * 513, "\ud800", ["x"]]),
        (Side, ["up", "LEFT", 0, None, ["left"]]),
        (Literal["a", "b"], ["c", 1, None, ["a"]]),
        (float | None, ["", False, {}]),
        (tuple[int, ...], [[0] * 65, [True], "12", {"1": 2}, None, 1]),
        (Mapping[str, int], [dict.fromkeys(map(str, range(65)), 1), {"a": "1"}, [], None]),
        (Mapping[str, int], [{"x" * 513: 1}, {"\n" * 300: "1"}, "a"]),
    ],
)
def test_a_value_of_another_type_length_or_range_is_refused_in_a_short_line(hint, values):
    for value in values:
        with pytest.raises(DecodingError, match=r"^Expected x.* to .*, got ") as error:
            decode_value(hint, value, "x")
        assert len(str(error.value)) < 250
        assert str(error.value).isascii()


def test_an_object_has_exactly_the_fields_that_are_not_given():
    good = {"rate": 1, "side": "left", "rounds": 3}
    assert decode_dataclass(Step, good, given=7) == Step(
        rate=1.0, side=Side.LEFT, rounds=3, given=7
    )
    with pytest.raises(DecodingError, match=r"^Expected exactly the keys of Step, got no rounds\."):
        decode_dataclass(Step, {"rate": 1, "side": None}, given=7)
    for key in ("given", "Rate", "\n" * 300):
        with pytest.raises(DecodingError, match=r"the keys of Step, got .* too") as error:
            decode_dataclass(Step, {**good, key: 1}, given=7)
        assert len(str(error.value)) < 200
    with pytest.raises(DecodingError, match="Step: Expected rate >= 0"):
        decode_dataclass(Step, {**good, "rate": -1}, given=7)
    for value in (None, [], "rate", 3):
        with pytest.raises(DecodingError, match="Expected Step to be a valid dictionary"):
            decode_dataclass(Step, value, given=7)


def test_a_field_of_a_type_that_messages_have_no_values_of_is_refused():
    with pytest.raises(DecodingError, match="Expected a type that messages can contain"):
        decode_value(list[int], [1], "x")


GOOD = {"name": "bins", "settings": {"bins": 4}, "digest": "0a" * 32}


def test_what_was_agreed_on_is_read_as_it_was_sent():
    assert parse_feature_map(GOOD, agreed=True) == GOOD
    asked = {"name": "bins", "settings": {}}
    assert parse_feature_map(asked, agreed=False) == asked
    assert parse_feature_map({}, agreed=True) == {}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "bins",
        {"name": "bins", "settings": {}},
        GOOD | {"more": 1},
        GOOD | {"name": 7},
        GOOD | {"name": ""},
        GOOD | {"name": "x" * 513},
        GOOD | {"settings": []},
        GOOD | {"settings": {"scale": float("inf")}},
        GOOD | {"settings": {"long": "x" * (1 << 14)}},
        GOOD | {"digest": "0A" * 32},
        GOOD | {"digest": "0a" * 31},
        GOOD | {"digest": None},
    ],
    ids=lambda value: repr(value)[:50],
)
def test_anything_else_is_refused_as_a_fault_of_the_protocol(value):
    with pytest.raises(Declined) as declined:
        parse_feature_map(value, agreed=True)
    assert declined.value.reason is Reason.PROTOCOL


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_FRAMES = st.builds(
    MessageFrame,
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
    assert "secret" not in repr(MessageFrame(kind="finish", head={}, blobs=(b"secret",)))
