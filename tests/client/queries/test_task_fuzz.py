"""Whatever queries a server sends, a party refuses them in words or knows what they are."""

import copy
import json
import random
from itertools import chain, product

import numpy as np
import pytest
from every_query import EXAMPLES, SCHEMA, block_of, records

from parley.client.algorithms.query_release import QueryRelease, bind_schema
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.refusals import Declined
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.schema import Schema
from parley.client.queries.count_queries import Count
from parley.client.queries.filters.parser import parse_where
from parley.client.queries.query_batch import Counting, QueryBatch
from parley.client.queries.randomised_response import ResponseQuery
from parley.client.queries.registry import QUERIES
from parley.privacy.accounting.threat_model import Neighbouring, Unit

OLD = parse_where("age > 60 and not (sex == 'Male' or ward in ('a', 'b')) and sex is null")
WORDS = [*SCHEMA.columns, *QUERIES, "", "none", "replace-one", "<", "in", "null", "a" * 600]
JUNK = [
    *(None, True, False, 0, 1, -1, 2, 63, 65, 4096, 2**31, 2**53, 2**63, -(2**70), 10**400),
    *(0.5, -0.0, 1e308, 1e-308, 5e-324, -1e9, [], {}, [[]], [None] * 70, {"and": []}),
    *([0.1] * 64, ["sex"] * 3, list(SCHEMA.columns), {"not": {"column": "age", "is": "null"}}),
]


COUNTINGS = (
    Counting(),
    Counting(unit=Unit.PERSON, most=3),
    Counting(unit=Unit.PARTY, most=500, clip="l1"),
    Counting(unit=Unit.PARTY, most=2, clip="l2", parties=3),
    Counting(parties=3),
)


def tasks():
    for relation, counting in product(Neighbouring, COUNTINGS):
        for query in chain.from_iterable(EXAMPLES.values()):
            if query == Count():  # of all, whose number is public
                continue
            batch = QueryBatch(queries=(query, Count(where=OLD)), weights=(4096, 7))
            if query.law and counting.is_size_private(relation):
                continue
            yield describe_task(QueryRelease(batch=batch, neighbouring=relation, counting=counting))
    alone = QueryBatch(queries=(ResponseQuery(column="ward", local=0.5),), weights=(1,))
    yield describe_task(QueryRelease(batch=alone, neighbouring=Neighbouring.REPLACE_ONE))


def places(value, path=()):
    """Every place in a value, as the keys that lead there."""
    yield path
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            yield from places(part, (*path, key))


def changed(task, rng):
    """A task with one to four places changed."""
    task = copy.deepcopy(task)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        paths = [path for path in places(task) if path]
        path = rng.choice(paths)
        holder = task
        for key in path[:-1]:
            holder = holder[key]
        match rng.randrange(6):
            case 0:
                holder[path[-1]] = copy.deepcopy(rng.choice(JUNK))
            case 1:
                holder[path[-1]] = rng.choice(WORDS)
            case 2:
                del holder[path[-1]]
            case 3 if isinstance(holder, dict):
                holder[rng.choice(WORDS)] = copy.deepcopy(rng.choice(JUNK))
            case 4 if isinstance(holder, list):
                holder[:] = copy.deepcopy((holder * 40)[:70])
            case _:
                inner = holder[path[-1]]
                for _ in range(rng.choice([1, 3, 12])):
                    inner = rng.choice([{"not": inner}, [inner], {"and": [inner, True]}])
                holder[path[-1]] = inner
        if not task:
            return task
    return task


def taken(task, block):
    """Whether a party would take the task; it knows then what it adds."""
    try:
        algorithm = bind_schema(decode_task(task), SCHEMA)
    except (DecodingError, Declined):
        return False
    if algorithm.kind != "query":
        return False
    assert (
        decode_task(json.loads(json.dumps(describe_task(algorithm), allow_nan=False))) is not None
    )
    counting, batch = algorithm.counting, algorithm.batch
    largest = counting.build_unit_set(batch, SCHEMA).largest
    assert 1 <= algorithm.dimension <= 10**7
    if algorithm.dimension <= 5000 and largest < 2**50:
        (vector,) = counting.compute_party_vectors(batch, block, [0])
        assert vector.shape == (algorithm.dimension,)
        assert np.abs(vector).max(initial=0) <= (1 if counting.clip else 3) * largest
    return True


def fuzzed(count):
    rng, block = random.Random(16), block_of(records(3, np.random.default_rng(1)))
    known = list(tasks())
    assert all(taken(task, block) for task in known)
    return sum(taken(changed(rng.choice(known), rng), block) for _ in range(count))


def test_no_task_of_queries_breaks_a_party():
    assert 20 < fuzzed(1500) < 1400


@pytest.mark.heavy
def test_no_task_of_a_hundred_thousand_queries_breaks_a_party():
    assert fuzzed(100_000) > 800  # two queries in each, one of them changed at least


def test_a_query_that_would_be_large_is_refused_before_anything_large_is_made():
    names = [f"c{k}" for k in range(64)]
    kind = '{ kind = "categorical", categories = ["a", "b"] }'
    label = 'sick = { kind = "label", positive = "yes", negative = "no" }'
    schema = Schema.from_toml("\n".join(["[columns]", *(f"{c} = {kind}" for c in names), label]))
    for query in (
        {"query": "marginals", "of": names, "ways": 32, "by": [], "where": None},
        {"query": "count", "by": names, "where": None},
        {"query": "marginals", "of": names[:40], "ways": 40, "by": [], "where": None},
    ):
        task = {"kind": "query", "version": 3, "neighbouring": "replace-one"}
        task["counting"] = Counting().to_json()
        with pytest.raises((DecodingError, Declined), match="at most"):
            bind_schema(decode_task({**task, "batch": [{**query, "weight": 1}]}), schema)
