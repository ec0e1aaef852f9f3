"""Counts: exact where there is no noise, bounded as they claim by every pair of neighbours."""

import numpy as np
import pytest
from blocks import block_of_columns

from parley.client.contract.decoding import DecodingError
from parley.client.data.schema import Schema
from parley.client.queries import query_from
from parley.client.queries.base import QueryError
from parley.client.queries.count import Count
from parley.privacy.accounting.guarantee import Neighbouring

SCHEMA = Schema.from_toml(
    """
[columns]
sex = { kind = "categorical", categories = ["Female", "Male"] }
ward = { kind = "categorical", categories = ["a", "b"], other = true }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


def test_every_party_counts_its_own_records_in_every_group():
    one = {"sex": ["Male", "Male", ""], "ward": ["a", "c", "b"], "sick": ["yes", "no", "yes"]}
    two = {"sex": ["Female"], "ward": ["b"], "sick": ["no"]}
    query = Count(by=("sex", "ward"))
    vectors = list(query.vectors(block_of_columns([one, two], SCHEMA), 5))
    assert [v.tolist() for v in vectors] == [
        [0, 0, 0, 5, 0, 5, 0, 5, 0],
        [0, 5, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert query.cells(SCHEMA) == 9
    assert all(v.dtype == np.int64 for v in vectors)


def test_a_count_of_all_is_public_under_replace_one():
    with pytest.raises(QueryError, match="Expected where or group_by"):
        Count().check(SCHEMA, Neighbouring.REPLACE_ONE)
    Count().check(SCHEMA, Neighbouring.ADD_OR_REMOVE_ONE)


def test_a_query_comes_back_from_its_plain_values_and_nothing_else_does():
    query = Count(by=("sex",))
    assert query_from(query.to_json()) == query
    good = query.to_json()
    for bad in (
        None,
        {},
        {**good, "query": "everything"},
        {**good, "more": 1},
        {**good, "by": "sex"},
        {**good, "by": ["sex", "sex"]},
        {**good, "by": ["s"] * 65},
        {"query": "count", "by": []},
    ):
        with pytest.raises(DecodingError):
            query_from(bad)
