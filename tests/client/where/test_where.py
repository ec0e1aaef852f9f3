"""Conditions: what they mean, that text and JSON say the same, and what is refused."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from blocks import block_of_columns
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.contract.canonical import canonical
from parley.client.contract.decoding import DecodingError
from parley.client.data.schema import Schema, SchemaError
from parley.client.where import Expression, WhereError, col, parse_where, where_from

SCHEMA = Schema.from_toml("""
[columns]
age = { kind = "numeric", range = [0, 100], missing = 40 }
"capital-gain" = { kind = "numeric", range = [-10, 10] }
sex = { kind = "categorical", categories = ["Female", "Male"] }
smoker = { kind = "categorical", categories = [true, false], other = true }
ward = { kind = "categorical", categories = [1, 2], missing = 2 }
note = { kind = "ignore" }
sick = { kind = "label", positive = "it's", negative = "no" }
""")
ROWS = [
    {
        "age": [10, 60, 300, None, 18],
        "capital-gain": [-50, 0, 5, 5, 2.5],
        "sex": ["Male", "", "Female", "Female", "Male"],
        "smoker": ["true", "false", "maybe", "True", ""],
        "ward": [1, 2, "", 1, 2],
        "sick": ["it's", "no", "no", "it's", "no"],
        "note": ["a"] * 5,
    }
]
BLOCK = block_of_columns(ROWS, SCHEMA)


def rows(condition: Expression | str) -> list[int]:
    """Which of the records count, after a journey as JSON."""
    found = parse_where(condition) if isinstance(condition, str) else condition
    found.check(SCHEMA)
    again = where_from(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert canonical(again) == canonical(found)
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
        "",
        "age",
        "60",
        "age >",
        "age > sex",
        "age > limit",
        "1 < 2",
        "'a' == 'a'",
        "age > 60 and",
        "(age > 60",
        "age > 60)",
        "age > 60 sex == 'Male'",
        "not",
        "age in ()",
        "age in 60",
        "age in (60",
        "age is 60",
        "sex not 'Male'",
        "abs(age) > 60",
        "age.is_null()",
        "age[0] > 60",
        "lambda: 1",
        "(lambda x: x)(age) > 1",
        "age + 1 > 60",
        "capital-gain > 5",
        "__import__('os').system('x')",
        "age > 60; drop table ward",
        "age > 60 # and more",
        "age > 1e999",
        "age > nan",
        "age > 0x10",
        "age > 1_000",
        "age > 99999999999999999999",
        "sex == 'Female",
        "sex == `Female`",
        "age > 60 & age < 80",
        "not " * 9 + "age > 60",
        "(" * 9 + "age > 60" + ")" * 9,
        "(" * 2000 + "age > 60" + ")" * 2000,
        " or ".join(["age > 60"] * 65),
        "age in (" + ", ".join(map(str, range(64))) + ")",
        "age > 60 or " * 400 + "age > 60",
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(WhereError, match=r"^Expected .*, got .*\.$"):
        parse_where(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: col.age > col.sex,
        lambda: col.age > None,
        lambda: col["age"] > -math.inf,
        lambda: col.age.is_in([math.nan]),
        lambda: col.age > [1],
        lambda: col.age.is_in("ab"),
        lambda: col.age.is_in([]),
        lambda: col.age.is_in(range(64)),
        lambda: (col.age > 1) and (col.age < 2),
        lambda: 1 < col.age < 2,
        lambda: not (col.age > 1),
        lambda: (col.age > 1) & True,
        lambda: col.sex == "x" * 513,
        lambda: parse_where(b"age > 1"),
    ],
)
def test_python_that_is_no_condition_is_refused(make):
    with pytest.raises(WhereError, match="Expected"):
        make()


@pytest.mark.parametrize(
    "text",
    [
        "agee > 60",  # no such column
        "note == 'a'",  # ignored
        "age > 'sixty'",
        "age == true",
        "sex > 'Female'",
        "sex == 'X'",
        "sex == 1",
        "sex in ('Female', 'X')",
        "age is null",  # has a `missing` of its schema
        "ward is null",
        "smoker is null",  # falls into (other)
        "age > 1 and not (sex == 'X')",
    ],
)
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
        None,
        [],
        "age > 60",
        {},
        {**LEAF, "more": 1},
        {"column": "age", "is": ">"},
        {"column": "age", "is": "~", "value": 1},
        {"column": 5, "is": ">", "value": 1},
        {"column": "a" * 513, "is": ">", "value": 1},
        {"column": "age", "is": [">"], "value": 1},
        {"column": "age", "is": ">", "value": math.nan},
        {"column": "age", "is": ">", "value": math.inf},
        {"column": "age", "is": ">", "value": None},
        {"column": "age", "is": ">", "value": [1]},
        {"column": "age", "is": ">", "value": 2**63},
        {"column": "age", "is": "in", "values": []},
        {"column": "age", "is": "in", "values": 5},
        {"column": "age", "is": "in", "values": list(range(64))},
        {"column": "age", "is": "in", "value": 5},
        {"column": "age", "is": "null", "value": None},
        {"and": [LEAF]},
        {"and": LEAF},
        {"and": [LEAF, LEAF], "or": [LEAF, LEAF]},
        {"and": [LEAF] * 64},
        {"not": [LEAF]},
        {"xor": [LEAF, LEAF]},
        nested(9),
        nested(900),
    ],
)
def test_other_json_is_refused(value):
    with pytest.raises(DecodingError, match=r"^where: Expected"):
        where_from(value)


def test_the_limits_themselves_are_allowed():
    assert where_from(nested(8)).size == (8, 8)
    assert where_from({"and": [LEAF] * 63}).size == (2, 64)


VALUES = st.one_of(
    st.integers(-5, 120),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=4),
)
LEAVES = st.one_of(
    st.builds(
        lambda c, s, v: {"column": c, "is": s, "value": v},
        st.sampled_from(["age", "capital-gain", "sex", "is", "x y"]),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        VALUES,
    ),
    st.builds(
        lambda v: {"column": "age", "is": "in", "values": v},
        st.lists(VALUES, min_size=1, max_size=4),
    ),
    st.just({"column": "sex", "is": "null"}),
)


def conditions(leaves, most):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda p: {"not": p}, inner),
            st.builds(
                lambda w, p: {w: p},
                st.sampled_from(["and", "or"]),
                st.lists(inner, min_size=2, max_size=3),
            ),
        ),
        max_leaves=most,
    )


@settings(max_examples=60, deadline=None)
@given(conditions(LEAVES, 6))
def test_what_is_read_is_written_again_and_its_text_means_the_same(value):
    try:
        found = where_from(value)
    except DecodingError:
        return  # too deep
    assert where_from(found.to_json()) == found
    text = str(found)
    try:
        again = parse_where(text)
    except WhereError as error:
        assert "levels" in str(error) or "characters" in str(error)  # noqa: PT017 - either limit
        return
    assert str(parse_where(str(again))) == str(again)
    assert again.columns == found.columns


def plainly(value, row):
    """What a condition means, said again."""
    if "not" in value:
        return not plainly(value["not"], row)
    for word, join in (("and", all), ("or", any)):
        if word in value:
            return join(plainly(part, row) for part in value[word])
    cell = row[value["column"]]
    if value["is"] == "null":
        return cell == "(missing)"
    if value["is"] == "in":
        return cell in value["values"]
    return eval(f"a {value['is']} b", {}, {"a": cell, "b": value["value"]})  # signs of the test


NUMBERS = st.sampled_from([0, 5, 40, 60, 99.5, 100, 300])
SOUND = conditions(
    st.one_of(
        st.builds(
            lambda s, v: {"column": "age", "is": s, "value": v},
            st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
            NUMBERS,
        ),
        st.builds(
            lambda v: {"column": "age", "is": "in", "values": v}, st.lists(NUMBERS, min_size=1)
        ),
        st.builds(
            lambda s, v: {"column": "sex", "is": s, "value": v},
            st.sampled_from(["==", "!="]),
            st.sampled_from(["Female", "Male", "(missing)"]),
        ),
        st.just({"column": "sex", "is": "null"}),
    ),
    5,
)


@settings(max_examples=150, deadline=None)
@given(
    SOUND,
    st.lists(st.tuples(NUMBERS, st.sampled_from(["Female", "Male", ""])), min_size=1, max_size=6),
)
def test_a_mask_is_what_the_condition_says_of_every_record_alone(value, records):
    try:
        condition = where_from(value)
    except DecodingError:
        return  # too deep or long
    condition.check(SCHEMA)
    table = {name: [ROWS[0][name][1]] * len(records) for name in ROWS[0]}
    table |= {"age": [age for age, _ in records], "sex": [sex for _, sex in records]}
    expected = [
        plainly(value, {"age": min(age, 100), "sex": sex or "(missing)"}) for age, sex in records
    ]
    assert condition.mask(block_of_columns([table], SCHEMA)).tolist() == expected


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["and", "or", "not", "column", "is", "value", "values", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def refused_or_a_condition(value):
    try:
        found = where_from(value)
    except DecodingError:
        return
    assert where_from(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    try:
        found.check(SCHEMA)
    except (WhereError, SchemaError):
        return
    assert found.mask(BLOCK).shape == (BLOCK.records,)


def refused_or_parsed(text):
    try:
        found = parse_where(text)
    except WhereError:
        return
    assert isinstance(found, Expression)


TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(
            [
                "age",
                "sex",
                "`a b`",
                ">",
                "<=",
                "==",
                "(",
                ")",
                ",",
                "and",
                "or",
                "not",
                "in",
                "is",
                "null",
                "60",
                "-1.5",
                "'x'",
                "true",
                ".",
                "[",
                "lambda",
            ]
        ),
        max_size=12,
    ).map(" ".join),
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(JSON, conditions(LEAVES, 6)), TEXTS)
def test_whatever_comes_is_a_condition_or_refused(value, text):
    refused_or_a_condition(value)
    refused_or_parsed(text)


def some_json(rng, depth=0):
    """Conditions, with here and there what none has."""
    roll = rng.random()
    if roll < 0.25 and depth < 9:
        word = rng.choice(["and", "or"])
        return {word: [some_json(rng, depth + 1) for _ in range(rng.choice([1, 2, 2, 3]))]}
    if roll < 0.4 and depth < 12:
        return {"not": some_json(rng, depth + 1)}
    if roll < 0.45:
        return rng.choice([None, 1, "x", [], {}, {"and": []}, {"xor": [1]}, math.nan, 2**80])
    value = rng.choice([1, 60.5, "Female", "", True, None, math.inf, [1], "a" * 600, -(2**70)])
    leaf = {
        "column": rng.choice(["age", "sex", "ward", "", 5]),
        "is": rng.choice(SIGNS),
        "value": value,
    }
    if leaf["is"] == "in":
        leaf["values"] = [leaf.pop("value")] * rng.choice([0, 1, 2, 70])
    if leaf["is"] == "null" and rng.random() < 0.8:
        del leaf["value"]
    if rng.random() < 0.05:
        leaf["more"] = 1
    return leaf


SIGNS = ["<", "<=", ">", ">=", "==", "!=", "in", "null", "~", ""]
TOKENS = [
    *(
        "age",
        "sex",
        "ward",
        "`capital-gain`",
        "`",
        ">",
        "<=",
        "==",
        "<>",
        "(",
        ")",
        ",",
        "and",
        "or",
    ),
    *(
        "not",
        "in",
        "is",
        "null",
        "60",
        "-1.5",
        "'Female'",
        "'",
        "true",
        ".",
        "[",
        "lambda",
        "\\",
        "1e999",
    ),
]


@pytest.mark.heavy
def test_a_hundred_thousand_of_whatever_comes():
    rng = random.Random(7)
    for _ in range(100_000):
        refused_or_a_condition(some_json(rng))
        refused_or_parsed(" ".join(rng.choices(TOKENS, k=rng.randrange(12))))
