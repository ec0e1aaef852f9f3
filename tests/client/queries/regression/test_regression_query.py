"""Regression: known answers of statsmodels and lifelines, bounds, and what cannot be asked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import AnsweredQuery, QueryError, QueryFacts
from parley.client.queries.query_decoding import decode_query
from parley.client.queries.regression.glm_families import FAMILIES
from parley.client.queries.regression.regression_query import STEPS, RegressionQuery
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sensitivity.exact_row_arithmetic import compute_squares

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
arm = { kind = "categorical", categories = ["a", "b", "c"] }
sick = { kind = "label", positive = "yes", negative = "no" }
visits = { kind = "numeric", range = [0, 30] }
week = { kind = "numeric", range = [0, 8], outside = "refuse" }
loose = { kind = "numeric", range = [0, 8] }
died = { kind = "numeric", range = [0, 1] }
change = { kind = "numeric", range = [-1, 1] }
note = { kind = "ignore" }
"""
)
OF = ("age", "arm")
ASKED = {
    "logistic": RegressionQuery(column="sick", of=OF, family="logistic", occurred="yes"),
    "poisson": RegressionQuery(column="visits", of=OF, family="poisson"),
    "negative-binomial": RegressionQuery(
        column="visits", of=OF, family="negative-binomial", dispersion=0.5
    ),
    "hazards": RegressionQuery(column="week", of=OF, family="hazards", event="died", bins=8),
}
WEIGHT = 2**20
REPLACED = Neighbouring.REPLACE_ONE


def block_of(columns):
    sizes = [0, len(columns["age"])]
    return RawPartyBlock(schema=SCHEMA, columns=columns, offsets=np.array(sizes))


def by_rule(rows=3000):
    """A table without random numbers, whose outcomes follow age and arm."""
    at = np.arange(rows)
    age, arm = 20.0 + at * 37 % 61, at * 7 % 3
    effect = 0.03 * (age - 50) + 0.5 * (arm == 1) - 0.4 * (arm == 2)
    even = ((at * 1009) % 3000 + 0.5) / 3000
    weeks = -np.log(even) * 36 * np.exp(-effect)
    return {
        "age": age,
        "arm": arm,
        "sick": np.where(even < 1 / (1 + np.exp(0.2 - effect)), 0, 1),
        "visits": np.clip(np.floor(-np.log(even) * np.exp(effect / 2 + 0.5)), 0, 12),
        "week": np.clip(np.ceil(weeks), 1, 8),
        "died": (weeks <= 8) * 1.0,
    }


def steps_of(query, block, noise=0.001, rng=None, count=STEPS):
    """Queries as they were answered, each where those before pointed."""
    steps = []
    for number in range(count):
        (total,) = query.compute_party_vectors(block, WEIGHT)
        if rng is not None:
            total = total + np.rint(rng.normal(0, noise, total.shape)).astype(np.int64)
        reach = CellNoise(law="gaussian", scale=noise, sampling=True)
        steps.append(AnsweredQuery(query=query, noisy=total, weight=WEIGHT, noise=reach))
        if number < count - 1:
            query = query.build_next_step(steps, SCHEMA)
    return steps


def answer_of(last, block):
    facts = QueryFacts(schema=SCHEMA, neighbouring=REPLACED, records=block.records)
    return last.query.answer(last.noisy, last.weight, last.noise, facts)


KNOWN = {  # statsmodels 0.15.0 on these rows: GLM(...).fit(cov_type="HC0"), CLogLog by person
    "logistic": ([0.02863, 0.42147, -0.47116], [0.00224, 0.09257, 0.09441]),
    "poisson": ([0.01945, 0.30725, -0.28778], [0.00142, 0.05911, 0.06323]),
    "negative-binomial": ([0.01953, 0.30916, -0.28631], [0.0014, 0.05834, 0.06275]),
    "hazards": ([0.03056, 0.50323, -0.39102], [0.0023, 0.0878, 0.10573]),
}
COX = [0.03054, 0.50294, -0.39091]
"""lifelines 0.30.3, CoxPHFitter, Efron's ties."""


@pytest.mark.parametrize("family", KNOWN)
def test_without_noise_it_is_what_others_find_on_the_pooled_rows(family):
    block = block_of(by_rule())
    table = answer_of(steps_of(ASKED[family], block)[-1], block)
    coefficients, errors = KNOWN[family]
    assert table["coefficient"] == ["age", "arm: b", "arm: c"]
    assert table["value"] == pytest.approx(coefficients, abs=0.01 * min(errors) + 4e-4)
    found = (np.asarray(table["high"]) - np.asarray(table["low"])) / 2 / 1.959964
    assert found == pytest.approx(errors, rel=0.03)
    if family == "hazards":
        assert table["value"] == pytest.approx(COX, abs=0.003)
    ratio = table[FAMILIES[family].ratio]
    assert ratio == pytest.approx(np.exp(coefficients), rel=0.002)


@settings(max_examples=40, deadline=None)
@given(
    family=st.sampled_from(sorted(ASKED)),
    start=st.lists(st.floats(-50, 50), min_size=11, max_size=11),
    centres=st.lists(st.floats(-1, 1), min_size=6, max_size=6),
)
def test_no_record_is_dropped_for_its_length_wherever_a_step_is_asked(family, start, centres):
    """The radius is a bound of all vectors: none is longer, so that none becomes zeros."""
    query, columns = ASKED[family], by_rule(200)
    columns["visits"][::3] = 30.0
    columns["age"][::5] = np.tile([0.0, 100.0], 20)
    count = query.count_intervals(SCHEMA) + 3
    query = replace(query, start=tuple(start[:count]), centres=tuple(centres))
    block, layout = block_of(columns), query.build_layout(SCHEMA)
    rows = np.rint(4096 * query.compute_rows(block))
    assert np.isfinite(rows).all()
    assert (compute_squares(rows) <= layout.bound_squared_move(4096)).all()


def test_a_start_that_a_server_makes_up_is_refused():
    plain = ASKED["logistic"].to_json()
    for key, bad in (
        ("start", [math.nan, 0.0, 0.0, 0.0]),
        ("start", [1e300, 0.0, 0.0, 0.0]),
        ("centres", [math.inf] * 6),
        ("centres", [1.5] * 6),
        ("step", 5),
        ("family", "none"),
    ):
        with pytest.raises((DecodingError, QueryError)):
            decode_query({**plain, key: bad})
    with pytest.raises(QueryError, match="start of 4 numbers, got 2"):
        replace(ASKED["logistic"], start=(0.0, 0.0)).check(SCHEMA, REPLACED)


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("hazards", {"of": ()}, "at least one covariate"),
        ("hazards", {"of": ("age", "age")}, "each column once"),
        ("hazards", {"of": ("week",)}, "each column once"),
        ("hazards", {"of": ("none",)}, "none"),
        ("hazards", {"of": ("note",)}, "kind ignore"),
        ("hazards", {"column": "loose"}, 'outside = "refuse"'),
        ("hazards", {"column": "change"}, "time from 0 on"),
        ("hazards", {"column": "sick"}, "column of numbers"),
        ("hazards", {"event": "sick"}, "occurred"),
        ("hazards", {"end": 9.0}, "end within"),
        ("hazards", {"bins": 0}, "bins"),
        ("hazards", {"cap": 3.0}, "no cap with hazards"),
        ("hazards", {"family": "poisson"}, "no event with poisson"),
        ("hazards", {"family": "linear"}, "family of logistic, poisson"),
        ("hazards", {"by": ("arm",)}, "without groups"),
        ("poisson", {"column": "sick"}, "column of numbers"),
        ("poisson", {"column": "change"}, "counts from 0 on"),
        ("poisson", {"cap": 31.0}, "cap within their range"),
        ("poisson", {"exposure": "week"}, "exposure > 0"),
        ("poisson", {"dispersion": 1.0}, "no dispersion with poisson"),
        ("poisson", {"family": "negative-binomial"}, "dispersion in"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(family, change, said):
    with pytest.raises((QueryError, SchemaError), match=said):
        replace(ASKED[family], **change).check(SCHEMA, REPLACED)


def test_intervals_hold_and_a_noise_of_another_size_is_noticed():
    """Chance of failing: none, the draws are seeded; at ⅔ of the noise's true scale they miss."""
    columns = {name: np.tile(values, 2) for name, values in by_rule().items()}
    block, rng = block_of(columns), np.random.default_rng(3)
    truth = np.array(KNOWN["logistic"][0])
    start = steps_of(ASKED["logistic"], block)[-1].query
    (total,) = start.compute_party_vectors(block, WEIGHT)
    scale = 12.0 * WEIGHT
    held = {1.0: [], 2 / 3: []}
    for _ in range(200):
        noisy = total + np.rint(rng.normal(0, scale, total.shape)).astype(np.int64)
        for factor, found in held.items():
            reach = CellNoise(law="gaussian", scale=scale * factor)
            each = AnsweredQuery(query=start, noisy=noisy, weight=WEIGHT, noise=reach)
            table = answer_of(each, block)
            found.append((table["low"] <= truth) & (truth <= table["high"]))
    assert 0.93 <= np.mean(held[1.0]) <= 0.98
    assert np.mean(held[2 / 3]) < 0.88


def test_too_few_records_for_the_noise_have_no_value_and_are_told_how_many_it_takes():
    block = block_of(by_rule(300))
    steps = steps_of(ASKED["logistic"], block, 40.0 * WEIGHT, np.random.default_rng(4))
    table = answer_of(steps[-1], block)
    assert np.isnan(table["value"]).all()
    assert np.isnan(table["p"]).all()
    last, facts = steps[-1], QueryFacts(schema=SCHEMA, neighbouring=REPLACED, records=300)
    beside = last.query.derive_tables(last.noisy, last.weight, last.noise, facts)["precision"]
    assert beside["ε or records times, to be enough"][0] != "1"
