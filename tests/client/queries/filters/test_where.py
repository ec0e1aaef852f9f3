"""Conditions: what they mean, that text and JSON say the same, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from conditions import BLOCK, SCHEMA

from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.schema import SchemaError
from parley.client.queries.filters.expressions import Expression, WhereError, col
from parley.client.queries.filters.parser import decode_where, parse_where


def rows(condition: Expression | str) -> list[int]:
    """Which of the records count, after a journey as JSON."""
    found = parse_where(condition) if isinstance(condition, str) else condition
    found.check(SCHEMA)
    again = decode_where(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert encode_canonical(again) == encode_canonical(found)
    mask = again.mask(BLOCK)
    assert mask.dtype == bool
    np.testing.assert_array_equal(parse_where(str(again)).mask(BLOCK), mask)
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(
    ("text", "expression", "expected"),
    [
        ("age > 60", col.age > 60, [2]),
        ("60 < age", col.age > 60, [2]),
        ("age == 100", col.age == 100, [2]),  # 300 is 100 to everybody
        ("age = 40", col.age == 40, [3]),  # an empty one is the schema's `missing`
        ("18 <= age < 60", (col.age >= 18) & (col.age < 60), [3, 4]),
        ("age in (10, 18.0)", col.age.is_in([10, 18.0]), [0, 4]),
        ("age NOT IN (10, 18)", ~col.age.is_in([10, 18]), [1, 2, 3]),
        ("`capital-gain` >= -10", col["capital-gain"] >= -10, [0, 1, 2, 3, 4]),
        ("`capital-gain` < -9.9e0", col["capital-gain"] < -9.9, [0]),
        ("sex == 'Female'", col.sex == "Female", [2, 3]),
        ("sex <> 'Female'", col.sex != "Female", [0, 1, 4]),
        ("sex is null", col.sex.is_null(), [1]),
        ("sex is not null", ~col.sex.is_null(), [0, 2, 3, 4]),
        ('sex is not None and sex != "Female"', ~col.sex.is_null() & (col.sex != "Female"), [0, 4]),
        ("smoker == true", col.smoker == True, [0, 3]),  # noqa: E712 - a condition
        ("smoker == '(other)'", col.smoker == "(other)", [2, 4]),
        ("ward == 2", col.ward == 2, [1, 2, 4]),
        ("ward in ('1')", col.ward.is_in(["1"]), [0, 3]),
        ("sick == 'it\\'s'", col.sick == "it's", [0, 3]),
        ("not (age > 60 or sex == 'Male')", ~((col.age > 60) | (col.sex == "Male")), [1, 3]),
        (
            "age > 60 or age < 20 and sex == 'Male'",
            (col.age > 60) | ((col.age < 20) & (col.sex == "Male")),
            [0, 2, 4],
        ),
    ],
)
def test_text_and_python_say_the_same(text, expression, expected):
    assert rows(text) == rows(expression) == expected


def test_numpys_scalars_are_constants_and_conditions_know_their_columns():
    found = (col.age > np.float64(60)) & (col.ward == np.int64(1)) & col.sex.is_null()
    assert found.columns == {"age", "ward", "sex"}
    assert json.dumps(found.to_json())
    assert {parse_where("age > 1"), parse_where("1 < age")} == {col.age > 1}


@pytest.mark.parametrize(
    "text",
    [
        "", "age", "60", "age >", "age > sex", "age > limit", "1 < 2", "'a' == 'a'",
        "age > 60 and", "(age > 60", "age > 60)", "age > 60 sex == 'Male'", "not", "age in ()",
        "age in 60", "age in (60", "age is 60", "sex not 'Male'", "abs(age) > 60",
        "age.is_null()", "age[0] > 60", "lambda: 1", "(lambda x: x)(age) > 1", "age + 1 > 60",
        "capital-gain > 5", "__import__('os').system('x')", "age > 60; drop table ward",
        "age > 60 # and more", "age > 1e999", "age > nan", "age > 0x10", "age > 1_000",
        "age > 99999999999999999999", "sex == 'Female", "sex == `Female`", "age > 60 & age < 80",
        "not " * 9 + "age > 60", "(" * 9 + "age > 60" + ")" * 9,
        "(" * 2000 + "age > 60" + ")" * 2000, " or ".join(["age > 60"] * 65),
        "age in (" + ", ".join(map(str, range(64))) + ")", "age > 60 or " * 400 + "age > 60",
    ],
)  # fmt: skip
def test_other_texts_are_refused(text):
    with pytest.raises(WhereError, match=r"^Expected .*, got .*\.$"):
        parse_where(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: col.age > col.sex, lambda: col.age > None, lambda: col["age"] > -math.inf,
        lambda: col.age.is_in([math.nan]), lambda: col.age > [1], lambda: col.age.is_in("ab"),
        lambda: col.age.is_in([]), lambda: col.age.is_in(range(64)),
        lambda: (col.age > 1) and (col.age < 2), lambda: 1 < col.age < 2,
        lambda: not (col.age > 1), lambda: (col.age > 1) & True, lambda: col.sex == "x" * 513,
        lambda: parse_where(b"age > 1"),
    ],
)  # fmt: skip
def test_python_that_is_no_condition_is_refused(make):
    with pytest.raises(WhereError, match="Expected"):
        make()


@pytest.mark.parametrize(
    "text",
    [
        "agee > 60",  # no such column
        "note == 'a'",  # ignored
        "age > 'sixty'", "age == true", "sex > 'Female'", "sex == 'X'", "sex == 1",
        "sex in ('Female', 'X')", "age is null",  # has a `missing` of its schema
        "ward is null", "smoker is null",  # falls into (other)
        "age > 1 and not (sex == 'X')",
    ],
)  # fmt: skip
def test_what_the_schema_has_no_meaning_for_is_refused(text):
    condition = parse_where(text)
    with pytest.raises((WhereError, SchemaError), match=r"^Expected .*, got "):
        condition.check(SCHEMA)


LEAF = {"column": "age", "is": ">", "value": 60}


def nested(levels):
    return LEAF if levels == 1 else {"not": nested(levels - 1)}


@pytest.mark.parametrize(
    "value",
    [
        None, [], "age > 60", {}, {**LEAF, "more": 1}, {"column": "age", "is": ">"},
        {"column": "age", "is": "~", "value": 1}, {"column": 5, "is": ">", "value": 1},
        {"column": "a" * 513, "is": ">", "value": 1}, {"column": "age", "is": [">"], "value": 1},
        {"column": "age", "is": ">", "value": math.nan},
        {"column": "age", "is": ">", "value": math.inf},
        {"column": "age", "is": ">", "value": None}, {"column": "age", "is": ">", "value": [1]},
        {"column": "age", "is": ">", "value": 2**63},
        {"column": "age", "is": "in", "values": []}, {"column": "age", "is": "in", "values": 5},
        {"column": "age", "is": "in", "values": list(range(64))},
        {"column": "age", "is": "in", "value": 5},
        {"column": "age", "is": "null", "value": None}, {"and": [LEAF]}, {"and": LEAF},
        {"and": [LEAF, LEAF], "or": [LEAF, LEAF]}, {"and": [LEAF] * 64}, {"not": [LEAF]},
        {"xor": [LEAF, LEAF]}, nested(9), nested(900),
    ],
)  # fmt: skip
def test_other_json_is_refused(value):
    with pytest.raises(DecodingError, match=r"^where: Expected"):
        decode_where(value)


def test_the_limits_themselves_are_allowed():
    assert decode_where(nested(8)).size == (8, 8)
    assert decode_where({"and": [LEAF] * 63}).size == (2, 64)
