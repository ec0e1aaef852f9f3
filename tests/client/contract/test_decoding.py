"""What becomes a fact, what is refused, and in which words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import pytest

from parley.client.contract.decoding import DecodingError, facts_from, value_from


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
    decoded = value_from(hint, value, "x")
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
            value_from(hint, value, "x")
        assert len(str(error.value)) < 250
        assert str(error.value).isascii()


def test_an_object_has_exactly_the_fields_that_are_not_given():
    good = {"rate": 1, "side": "left", "rounds": 3}
    assert facts_from(Step, good, given=7) == Step(rate=1.0, side=Side.LEFT, rounds=3, given=7)
    with pytest.raises(DecodingError, match=r"^Expected exactly the keys of Step, got no rounds\."):
        facts_from(Step, {"rate": 1, "side": None}, given=7)
    for key in ("given", "Rate", "\n" * 300):
        with pytest.raises(DecodingError, match=r"the keys of Step, got .* too") as error:
            facts_from(Step, {**good, key: 1}, given=7)
        assert len(str(error.value)) < 200
    with pytest.raises(DecodingError, match="Step: Expected rate >= 0"):
        facts_from(Step, {**good, "rate": -1}, given=7)
    for value in (None, [], "rate", 3):
        with pytest.raises(DecodingError, match="Expected Step to be a valid dictionary"):
            facts_from(Step, value, given=7)


def test_a_field_of_a_type_that_messages_have_no_values_of_is_refused():
    with pytest.raises(DecodingError, match="Expected a type that messages have values of"):
        value_from(list[int], [1], "x")
