"""Whatever comes as a condition, text or JSON, is a condition or refused."""

from __future__ import annotations

import json
import math
import random

import pytest
from blocks import block_of_columns
from conditions import BLOCK, ROWS, SCHEMA
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.schema import SchemaError
from parley.client.queries.filters.expressions import Expression, WhereError
from parley.client.queries.filters.parser import decode_where, parse_where

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
        found = decode_where(value)
    except DecodingError:
        return  # too deep
    assert decode_where(found.to_json()) == found
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
        condition = decode_where(value)
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
        found = decode_where(value)
    except DecodingError:
        return
    assert decode_where(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
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


SIGNS_AND_NAMES = (
    "age sex ward `capital-gain` ` > <= == <> ( ) , 60 -1.5 'Female' 'x' ' . [ \\ 1e999"
)
TOKENS = [*SIGNS_AND_NAMES.split(), "and", "or", "not", "in", "is", "null", "true", "lambda"]
TEXTS = st.one_of(
    st.text(max_size=30), st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join)
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


@pytest.mark.heavy
def test_a_hundred_thousand_of_whatever_comes():
    rng = random.Random(7)
    for _ in range(100_000):
        refused_or_a_condition(some_json(rng))
        refused_or_parsed(" ".join(rng.choices(TOKENS, k=rng.randrange(12))))
