"""Records and settings chosen to break a norm: ends of ranges, ties, sums beyond exact doubles."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from blocks import block_of_columns

from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.correlations import CorrelationsQuery
from parley.client.queries.count_queries import Histogram
from parley.client.queries.group_cells import round_sums
from parley.client.queries.kmeans import KMeansGrid, KMeansStep
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.query_batch import Counting, QueryBatch
from parley.client.queries.regression.regression_query import RegressionQuery
from parley.client.queries.sum_queries import ColumnSum
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity

QUERIES = (
    ColumnSum(column="x", by=("c",)),
    Mean(column="x"),
    Variance(column="x", by=("c",)),
    Histogram(column="x", bins=997),
    Quantiles(column="x", step=0.0),
    KMeansGrid(of=("x",), clusters=2),
    RegressionQuery(column="y", of=("x", "c"), family="logistic", occurred="p"),
    KMeansStep(of=("x",), centres=(1.0, 1.0, -1.0)),  # two centres tie for every record
)


def schema_of(low, high):
    return Schema.from_toml(
        "[columns]\n"
        f'x = {{ kind = "numeric", range = [{low!r}, {high!r}], outside = "clamp" }}\n'
        'c = { kind = "categorical", categories = ["a", "b"], other = true }\n'
        'y = { kind = "label", positive = "p", negative = "n" }\n'
    )


def block_with(schema, last):
    rows = [(0.0, "a"), (-0.0, "b"), *([last] if last else [])]
    columns = {"x": [r[0] for r in rows], "c": [r[1] for r in rows], "y": ["p"] * len(rows)}
    return block_of_columns([columns], schema)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1e-200), (-1e100, 1e100), (1.0, 1.0 + 2**-52)])
@pytest.mark.parametrize("relation", Neighbouring)
def test_no_record_at_the_ends_of_doubles_moves_a_sum_further_than_claimed(low, high, relation):
    schema, weight = schema_of(low, high), 2**31
    ends = [low, high, -0.0, 1e300, -1e300, float(np.nextafter(low, high))]
    records = list(product(ends, ("a", "", "other")))[:9:2]
    records += [(ends[1], "b"), (ends[4], "b")]
    others = records if relation is Neighbouring.REPLACE_ONE else [None]
    blocks = {each: block_with(schema, each) for each in {*records, *others}}
    facts = QueryFacts(schema=schema, neighbouring=relation, records=None)
    for query in QUERIES:
        if isinstance(query, ColumnSum) and low == 1.0:
            continue
        own = query.tune("laplace", facts)
        moved = compute_sensitivity(own.build_record_set(schema, weight), relation)
        sums = {
            each: next(own.compute_party_vectors(block, weight)) for each, block in blocks.items()
        }
        for one, other in product(records, others):
            apart = sums[one] - sums[other]
            steps = apart[apart != 0].tolist()
            assert sum(map(abs, steps)) <= moved.l1, (own, one, other)
            assert sum(x * x for x in steps) <= moved.l2_squared, (own, one, other)


def test_a_range_that_nothing_can_be_divided_by_is_refused():
    with pytest.raises(SchemaError, match="wide, got"):
        schema_of(0.0, 5e-324)


def test_a_variance_beyond_the_doubles_is_refused_before_it_is_asked():
    with pytest.raises(QueryError, match="larger unit"):
        Variance(column="x").check(schema_of(0.0, 1e200), Neighbouring.REPLACE_ONE)


@pytest.mark.parametrize("bits", [0, 3, 8, 23, 24, 25, 36, 47])
def test_a_party_s_sum_is_exact_beyond_the_exact_doubles_and_rounded_once(bits):
    rng = np.random.default_rng(bits)
    values, codes = rng.uniform(-1, 1, 50_000) * 2.0 ** (48 - bits), rng.integers(0, 3, 50_000)
    values[:20_000] = np.abs(values[:20_000])  # a partial sum beyond 2^53 steps
    values[-1], codes[-1] = 0.5, 3  # a half is rounded up, in its own cell
    fine = [Fraction(round(Fraction(v) * 2**bits), 2**bits) for v in values.tolist()]
    exact = [sum(v for v, k in zip(fine, codes, strict=True) if k == cell) for cell in range(4)]
    expected = [math.floor(part + Fraction(1, 2)) for part in exact]
    assert round_sums(codes, values, 4, bits).tolist() == expected


def lists(columns):
    return {name: part.tolist() for name, part in columns.items()}


WHOLE_SUMS = (
    ColumnSum(column="x", by=("c",)),
    Mean(column="x", by=("c",)),
    Variance(column="x"),
    Variance(column="x", by=("c",)),
    CorrelationsQuery(of=("x", "c", "y")),
    RegressionQuery(column="y", of=("x", "c"), family="logistic", occurred="p"),
    KMeansStep(of=("x",), centres=(0.5, -0.5)),
)


@functools.cache
def neighbours():
    """Return the schema, and per weight blocks: all records, one replaced, and one left out."""
    schema, rng = schema_of(-3.3, 10.0), np.random.default_rng(5)

    def draw():
        size = int(rng.integers(2, 12))
        columns = {
            "x": rng.choice([-3.3, 10.0, *rng.uniform(-3.3, 10, 5)], size),
            "c": rng.choice(["a", "b"], size),
            "y": rng.choice(["p", "n"], size),
        }
        other = {name: part.copy() for name, part in columns.items()}
        other["c"][0], other["y"][0] = rng.choice(["a", "b"]), rng.choice(["p", "n"])
        other["x"][0] = rng.choice([-3.3, 10.0, rng.uniform(-3.3, 10)])
        less = {name: part[1:] for name, part in columns.items()}
        return [block_of_columns([lists(each)], schema) for each in (columns, other, less)]

    return schema, {weight: [draw() for _ in range(40)] for weight in (1, 4096)}


@pytest.mark.parametrize("query", WHOLE_SUMS, ids=lambda query: query.kind)
def test_a_record_moves_the_rounded_sum_of_many_no_farther_than_its_set_says(query):
    """At the least weight, where rounding is the largest part, whoever the others are."""
    schema, drawn = neighbours()
    for weight, triples in drawn.items():
        of = query.build_record_set(schema, weight)
        for triple in triples:
            full, replaced, without = (
                next(iter(query.compute_party_vectors(block, weight))) for block in triple
            )
            for moved, bound in ((full - replaced, of.diameter), (full - without, of.radius)):
                steps = [int(step) for step in moved]
                assert sum(map(abs, steps)) <= bound.l1
                assert sum(step * step for step in steps) <= bound.l2_squared


def test_entries_that_many_records_would_wrap_around_are_refused_where_sizes_are_private():
    schema = schema_of(0.0, 1.0)
    batch = QueryBatch(queries=(Histogram(column="c"),), weights=(2**31 + 1,))
    counting = Counting()
    counting.compute_sensitivity(
        batch, schema, Neighbouring.REPLACE_ONE
    )  # the plan's bound is of its records
    with pytest.raises(QueryError, match="private"):
        counting.compute_sensitivity(batch, schema, Neighbouring.ADD_OR_REMOVE_ONE)
