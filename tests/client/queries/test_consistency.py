"""Counts of a batch agree: nearer by as much as is said, and the budget shared out for it."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import block_of_columns

from parley.client.data.schema import Schema
from parley.client.queries.base import QueryFacts
from parley.client.queries.consistency import BatchConsistency, compute_rms
from parley.client.queries.count_queries import Count, Histogram, MarginalsQuery
from parley.client.queries.filters.expressions import col
from parley.client.queries.mode_query import Mode
from parley.client.queries.moments import Mean
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.query_batch import QueryBatch
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise

REPLACE, REMOVE = Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE_ONE
SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
ward = { kind = "categorical", categories = ["a", "b", "c", "d"], missing = "a" }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
N, OLD = 1000, col.age > 60
ROUNDING = 1e-12 * N
"""Absolute error of a count after least squares: sums of a hundred floats up to N, each rounded to
2⁻⁵³ of N in an order that depends on the processor. The noise is 10¹⁰ times as large."""
LAWS = {"laplace": 1.0, "gaussian": 0.5}


def agreement(queries, *, records=N, weights=None, **more):
    batch = QueryBatch(queries=tuple(queries), weights=tuple(weights or [1] * len(queries)))
    relation = REMOVE if records is None else REPLACE
    facts = QueryFacts(schema=SCHEMA, neighbouring=relation, records=records)
    return BatchConsistency(batch=batch, facts=facts, **more)


def noise_of(law, scale, rng, shape):
    if law == "gaussian":
        return np.rint(rng.normal(0, scale, shape)).astype(np.int64)
    p = 1 - np.exp(-1 / scale)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


BATCHES = {
    "a count that a histogram has too": [
        Count(by=("ward",)),
        Histogram(column="sex", by=("ward",)),
    ],
    "tables of one and of two columns": [
        MarginalsQuery(of=("ward", "sex", "sick"), ways=1),
        MarginalsQuery(of=("ward", "sex", "sick")),
    ],
    "a total and its groups": [Count(where=OLD), Count(where=OLD, by=("ward",))],
    "a count and a mean": [Count(by=("sex",)), Mean(column="age", by=("sex",))],
    "a histogram alone": [Histogram(column="sex")],
}


ROWS = {
    "age": np.arange(N) % 100,
    "ward": np.array(list("aaabbcddda"))[np.arange(N) % 10],
    "sex": np.where(np.arange(N) % 3, "Female", "Male"),
    "sick": np.where(np.arange(N) % 7, "no", "yes"),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("records", [N, None])
@pytest.mark.parametrize("name", BATCHES)
def test_intervals_hold_as_often_as_they_say_and_those_of_another_scale_do_not(name, records, law):
    queries = BATCHES[name]
    weights = [1 + k for k in range(len(queries))]
    made = agreement(queries, records=records, weights=weights)
    (exact,) = made.batch.compute_party_vectors(block_of_columns([ROWS], SCHEMA))
    without = made.make_consistent(exact)
    if records is None and len(queries) == 1:
        assert without == [None]  # nothing to agree with
        return
    # What agrees is linear in the noise: one column of the map a cell.
    moved = [made.make_consistent(exact + 1000 * row) for row in np.eye(len(exact), dtype=np.int64)]
    noise = noise_of(law, 30.0, np.random.default_rng(1), (20_000, len(exact)))
    for number, (query, weight) in enumerate(zip(queries, weights, strict=True)):
        if not query.consistent:
            assert without[number] is None
            continue
        place = made.batch.list_slices(SCHEMA)[number]
        np.testing.assert_allclose(without[number].values, exact[place] / weight, atol=ROUNDING)
        linear = np.stack([each[number].values for each in moved]) - without[number].values
        off = np.abs(noise @ linear / 1000)
        spread = 30 * np.sqrt(2 if law == "laplace" else 1) / weight
        nearer = np.sqrt(np.square(off).mean()) / spread
        assert nearer == pytest.approx(compute_rms(without[number].factors), rel=0.02)
        assert nearer < 0.95

        noisy = off, without[number], law, weight
        assert 0.945 < held(*noisy) < 0.98
        assert held(*noisy, factor=2 / 3) < 0.9
        assert held(*noisy, factor=3 / 2) > 0.985
        assert held(*noisy, together=off.shape[1]) > 0.945


def held(off, agreed, law, weight, *, factor=1.0, together=1):
    """How often answers that are off by so much are within their intervals: each, or all."""
    reach = CellNoise(law=law, scale=30 * factor, together=together)
    inside = off <= agreed.compute_half_widths(reach, weight)
    return inside.mean() if together == 1 else inside.all(axis=1).mean()


def test_what_counts_other_records_or_was_cut_or_has_hardly_any_noise_is_left_alone():
    exact = np.arange(6)
    two = [Count(by=("sex",), where=OLD), Histogram(column="ward", where=col.age > 61)]
    assert agreement(two).make_consistent(exact) == [None, None]
    alike = [Count(by=("sex",)), Histogram(column="ward")]
    assert agreement(alike, clipped=True).make_consistent(exact) == [None, None]
    fine = CellNoise(law="laplace", scale=0.5)
    assert agreement(alike, noise=fine).make_consistent(exact) == [None, None]
    first, second = agreement(alike, records=15).make_consistent(exact)
    assert first.values.tolist() == [7.0, 8.0]
    assert second.values.sum() == pytest.approx(15)
    grid = Quantiles(column="age", step=1, by=("sex",), branching=101)
    tree = Quantiles(column="age", by=("sex",))
    for evidence, agrees in ((grid, True), (tree, False), (Mode(column="sex"), True)):
        made = agreement([Count(by=("sex",)), evidence], records=None)
        assert (made.factors[0] < 1) == agrees
        assert (made.factors[2:] == 1).all()


@pytest.mark.parametrize("law", LAWS)
def test_a_budget_is_shared_out_as_asked_unless_answers_say_something_of_each_other(law):
    power = LAWS[law]

    def steps(parts):
        return parts**power / 7

    other = [Count(by=("sex",), where=OLD), Mean(column="age"), Histogram(column="ward")]
    assert agreement(other).allocate_budget([1, 2, 1], steps).tolist() == [0.25, 0.5, 0.25]
    queries, shares = BATCHES["tables of one and of two columns"], [0.5, 0.5]
    made = agreement(queries, records=None)

    def regret(part):
        weights = np.rint(1e6 * steps(np.array([part, 1 - part]))).astype(int)
        tried = agreement(queries, records=None, weights=weights.tolist())
        each = zip(tried.batch.list_slices(SCHEMA), weights, shares, strict=True)
        return sum(s * np.log(compute_rms(tried.factors[at]) / w) for at, w, s in each)

    parts = made.allocate_budget(shares, steps)
    assert parts.sum() == pytest.approx(1, abs=1e-5)
    assert parts[0] < 0.3
    found = regret(max(parts[0], 1e-4))
    assert all(found <= regret(part) + 1e-3 for part in (0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5))
