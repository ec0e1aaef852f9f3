"""Units of queries: no record, person or party moves a sum further than its norms say."""

import json
from dataclasses import replace

import numpy as np
import pytest
from every_query import EXAMPLES, OLD, SCHEMA, block_of, records

from parley.client.contract.strict_decoding import DecodingError
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.count_queries import Count, Histogram
from parley.client.queries.kmeans import KMeansStep
from parley.client.queries.mode_query import Mode
from parley.client.queries.moments import Mean
from parley.client.queries.query_batch import Counting, QueryBatch, decode_counting
from parley.client.queries.randomised_response import ResponseQuery
from parley.privacy.accounting.threat_model import Neighbouring, Unit

BATCHES = [
    *((examples[-1],) for kind, examples in EXAMPLES.items() if kind not in (Mode, ResponseQuery)),
    (Count(where=OLD), Mean(column="age", where=OLD), Histogram(column="sex")),
]
PARTIES = [
    Counting(unit=Unit.PARTY, most=most, clip=clip)
    for most, clip in ((7, "l1"), (7, "l2"), (1, "l2"))
]


def facts_of(relation):
    return QueryFacts(schema=SCHEMA, neighbouring=relation, records=None)


def batch_of(queries, weight):
    return QueryBatch(queries=queries, weights=tuple(weight + k for k in range(len(queries))))


def of_one(*parts):
    """A block of one party."""
    block = block_of(*parts)
    return replace(block, offsets=block.offsets[[0, -1]])


def summed(counting, batch, block, place=0):
    (vector,) = counting.compute_party_vectors(batch, block, [place])
    return vector


def held(counting, batch, relation, pairs):
    """The largest ‖difference‖₁/Δ₁ and ‖difference‖₂²/Δ₂², both checked to be at most 1."""
    moves, seen = counting.compute_sensitivity(batch, SCHEMA, relation), [0.0, 0.0]
    for one, other in pairs:
        moved = summed(counting, batch, one)
        if other is not None:
            moved = moved - summed(counting, batch, other)
        exact = [int(x) for x in moved]
        first, second = sum(map(abs, exact)), sum(x * x for x in exact)
        assert first <= moves.l1, (batch, counting, relation)
        assert second <= moves.l2_squared, (batch, counting, relation)
        seen = [max(seen[0], first / moves.l1), max(seen[1], second / moves.l2_squared)]
    return max(seen)


@pytest.mark.parametrize("queries", BATCHES)
@pytest.mark.parametrize("relation", list(Neighbouring))
def test_no_person_moves_the_sum_further_than_so_many_records(queries, relation):
    rng, most = np.random.default_rng(3), 3
    counting, batch = Counting(unit=Unit.PERSON, most=most), batch_of(queries, 64)
    if relation is Neighbouring.ADD_OR_REMOVE_ONE:
        facts = facts_of(relation)
        tuned = tuple(query.tune("laplace", facts) for query in batch.queries)
        batch = replace(batch, queries=tuned)
    pairs = []
    for _ in range(20):
        rest, one, other = (records(k, rng) for k in (4, most, most))
        same = {name: np.repeat(column[:1], most) for name, column in one.items()}
        pair = [of_one(rest, same if rng.random() < 0.5 else one), of_one(rest, other)]
        if relation is Neighbouring.ADD_OR_REMOVE_ONE:
            pair[1] = block_of(rest)
        pairs.append(pair)
    assert held(counting, batch, relation, pairs) > 0.3


@pytest.mark.parametrize("queries", BATCHES)
@pytest.mark.parametrize("counting", PARTIES)
@pytest.mark.parametrize("relation", list(Neighbouring))
def test_no_party_moves_the_sum_further_than_its_clip(queries, counting, relation):
    rng = np.random.default_rng(4)
    inside = counting.get_relation(relation)
    tuned = tuple(query.tune("laplace", facts_of(inside)) for query in queries)
    batch, pairs = batch_of(tuned, 64), []
    for _ in range(12):
        one, other = (records(int(rng.choice([1, 5, 40, 300])), rng) for _ in range(2))
        extreme = {name: np.repeat(column[:1], 300) for name, column in one.items()}
        pair = [block_of(extreme if rng.random() < 0.5 else one), block_of(other)]
        pairs.append(pair if relation is Neighbouring.REPLACE_ONE else [pair[0], None])
    assert held(counting, batch, relation, pairs) > 0.2
    # Nor is an entry larger than the ring was made for.
    largest = counting.build_unit_set(batch, SCHEMA).largest
    for one, _ in pairs:
        assert np.abs(summed(counting, batch, one)).max() <= largest


def test_a_party_within_its_clip_is_counted_as_it_is_and_a_larger_one_keeps_its_ratios():
    rows = records(100, np.random.default_rng(5)) | {"age": np.repeat([61.0, 5.0], [75, 25])}
    batch = batch_of((Histogram(column="age", bins=2),), 1)
    for most, found in ((100, [25, 75]), (40, [10, 30]), (1000, [25, 75])):
        counting = Counting(unit=Unit.PARTY, most=most, clip="l1")
        assert summed(counting, batch, block_of(rows)).tolist() == found
    # 25² + 75² > 79²: in L2 it counts for 79.06.
    narrow = Counting(unit=Unit.PARTY, most=79, clip="l2")
    assert summed(narrow, batch, block_of(rows)).tolist() == [24, 74]


def test_the_sum_of_moves_is_never_charged_beyond_what_the_root_of_their_squares_allows():
    step = KMeansStep(of=("age", "change"), centres=(0.25, 1.0), balance=4096, where=OLD)
    batch = QueryBatch(queries=(step,), weights=(4096,))
    for relation in Neighbouring:
        moved = Counting().compute_sensitivity(batch, SCHEMA, relation)
        assert moved.l1**2 <= batch.count_cells(SCHEMA) * moved.l2_squared


def test_by_party_each_fills_cells_of_its_own():
    batch = batch_of((Count(where=OLD), Histogram(column="sex")), 1)
    block = block_of(records(30, np.random.default_rng(7)))
    alone, counting = summed(Counting(), batch, block), Counting(parties=3)
    wide = summed(counting, batch, block, place=1)
    assert wide.tolist() == [0] * 4 + alone.tolist() + [0] * 4
    moved = [
        each.compute_sensitivity(batch, SCHEMA, Neighbouring.REPLACE_ONE)
        for each in (counting, Counting())
    ]
    assert moved[0] == moved[1]
    with pytest.raises(ValueError, match="below 3"):
        summed(counting, batch, block, place=3)
    with pytest.raises(QueryError, match="of 1048576 parties together"):
        summed(Counting(parties=2**20), batch_of((Histogram(column="age", bins=20),), 1), block)


def test_it_travels_as_plain_values_and_is_read_strictly():
    good = Counting(unit=Unit.PERSON, most=3, parties=4).to_json()
    assert decode_counting(json.loads(json.dumps(good))) == Counting(
        unit=Unit.PERSON, most=3, parties=4
    )
    for change in (
        {"most": 0}, {"most": True}, {"most": 2**31 + 1}, {"most": 3.0}, {"unit": "hospital"},
        {"unit": "record"}, {"clip": "l1"}, {"clip": "l3"}, {"unit": "party"}, {"parties": -1},
        {"parties": 2**21}, {"more": 1}, {"unit": None}, {"clip": None},
    ):  # fmt: skip
        with pytest.raises(DecodingError):
            decode_counting({**good, **change})
    for missing in good:
        with pytest.raises(DecodingError):
            decode_counting({key: value for key, value in good.items() if key != missing})
    for other in (None, [], "person", 3):
        with pytest.raises(DecodingError):
            decode_counting(other)
