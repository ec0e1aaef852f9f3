"""What every query promises. A new one subclasses `QueryConformance` with examples of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from every_query import EXAMPLES, OLD, SCHEMA, block_of, records

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.queries.base import Query, QueryFacts
from parley.client.queries.moments import Mean
from parley.client.queries.query_decoding import decode_query
from parley.client.queries.registry import QUERIES
from parley.client.queries.regression.regression_query import RegressionQuery
from parley.client.queries.selection_queries import SelectionQuery
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity

RELATIONS = list(Neighbouring)
WEIGHTS = (1, 7, 4096)
SPECIAL = [np.nan, np.inf, -np.inf, 5e-324, -1e308, 1.8e308, -1e-9, 100.0000001]


def hostile(count, rng):
    """Columns that no schema lets through: not numbers, out of range, unknown categories."""
    found = records(count, rng)
    for values in found.values():
        odd = rng.random(count) < 0.5
        special = SPECIAL if values.dtype == float else [-1, 3, -(2**63), 2**63 - 1]
        values[odd] = rng.choice(special, odd.sum())
    return found


def one_winner(query):
    try:
        query.check_choice(SCHEMA)
    except ValueError:
        return False
    return True


class QueryConformance:
    """`examples` are queries of the kind, all of its shapes; `near` of the bounds is reached."""

    near: ClassVar[tuple[float, float]] = (0.6, 0.4)
    examples: ClassVar[tuple[Query, ...]]

    def asked(self):
        for query in self.examples:
            for relation in RELATIONS:
                facts = QueryFacts(schema=SCHEMA, neighbouring=relation, records=None)
                for law in ("laplace", "gaussian"):
                    one = query.tune(law, facts)
                    try:
                        one.check(SCHEMA, relation)
                    except ValueError:
                        continue
                    yield one, relation

    def summed(self, query: Query, block: RawPartyBlock, weight: int):
        whole = np.zeros(query.count_cells(SCHEMA), dtype=np.int64)
        for vector in query.compute_party_vectors(block, weight):
            assert vector.dtype == np.int64
            assert vector.shape == whole.shape
            whole += vector
        return whole

    def test_no_neighbour_moves_the_integers_further_than_its_set_says(self):
        """All neighbours in some hundred records, hostile ones among them."""
        rng = np.random.default_rng(5)
        each = [records(100, rng), hostile(60, rng)]
        whole = block_of(*each)
        alone = replace(whole, offsets=np.arange(161))
        for query, relation in self.asked():
            for weight in WEIGHTS:
                given = query.build_record_set(SCHEMA, weight)
                with np.errstate(over="ignore"):
                    rows = np.stack(list(query.compute_party_vectors(alone, weight)))
                    total = self.summed(query, whole, weight)
                # A record's vector depends on that record alone: the sum is of what each adds, and
                # is rounded once. A lone record's own sum is rounded, too.
                most = 0 if query.integral else 161 / 2
                assert np.abs(total - rows.sum(axis=0)).max() <= most
                self.check_company(query, relation, weight, whole, rng)
                assert np.abs(rows).max() <= given.largest
                kept = np.unique(rows, axis=0)
                others = kept if relation is Neighbouring.REPLACE_ONE else np.zeros_like(kept[:1])
                apart = (kept[:, None] - others).reshape(-1, kept.shape[1])
                l1, l2 = np.abs(apart).sum(axis=1).max(), np.square(apart).sum(axis=1).max()
                moved = compute_sensitivity(given, relation)
                assert l1 <= moved.l1, (query, relation, weight)
                assert l2 <= moved.l2_squared, (query, relation, weight)
            # And the bound is not a guess: some neighbours come near it.
            assert l1 > self.near[0] * moved.l1, (query, relation)
            assert l2 > self.near[1] * moved.l2_squared, (query, relation)

    def check_company(self, query, relation, weight, whole, rng):
        """Check that a record among others moves their rounded sum no further, either."""
        moved = compute_sensitivity(query.build_record_set(SCHEMA, weight), relation)
        for at, other in rng.integers(0, whole.records, (12, 2)):
            kept, offsets = np.arange(whole.records), whole.offsets
            if relation is Neighbouring.REPLACE_ONE:
                kept[at] = other
            else:
                kept, offsets = np.delete(kept, at), offsets - (offsets > at)
            columns = {name: part[kept] for name, part in whole.columns.items()}
            near = replace(whole, columns=columns, offsets=offsets)
            with np.errstate(over="ignore"):
                apart = self.summed(query, whole, weight) - self.summed(query, near, weight)
            assert np.abs(apart).sum() <= moved.l1, (query, relation, weight)
            assert np.square(apart).sum() <= moved.l2_squared, (query, relation, weight)

    def test_what_counts_is_never_below_zero(self):
        rng = np.random.default_rng(6)
        for query, _ in self.asked():
            for vector in query.compute_party_vectors(block_of(records(40, rng)), 64):
                assert not query.nonnegative or vector.min() >= 0, query

    def test_no_neighbour_moves_a_score_further_than_its_sensitivity(self):
        rng = np.random.default_rng(15)
        for query, relation in self.asked():
            if not isinstance(query, SelectionQuery) or not one_winner(query):
                continue
            facts, seen = QueryFacts(schema=SCHEMA, neighbouring=relation, records=None), []
            for _ in range(60):
                rest, one, other = (records(k, rng) for k in (4, 1, 1))
                pair = [block_of(rest, one), block_of(rest, other)]
                if relation is Neighbouring.ADD_OR_REMOVE_ONE:
                    pair[1] = block_of(rest)
                scores = [
                    query.compute_scores(self.summed(query, each, 64), 64, facts) for each in pair
                ]
                assert scores[0].shape == (query.count_candidates(SCHEMA),)
                seen.append(np.abs(scores[0] - scores[1]).max())
            most = compute_sensitivity(query.build_score_set(64), relation).l1
            assert most / 2 < max(seen) <= most, (query, relation)

    def test_a_big_party_is_the_sum_of_its_parts(self):
        rng = np.random.default_rng(7)
        block = block_of(*(records(k, rng) for k in (50, 1, 20)))
        one = replace(block, offsets=block.offsets[[0, -1]])
        for query, _ in self.asked():
            apart = np.abs(self.summed(query, block, 9) - self.summed(query, one, 9))
            # Each party rounds its sum once: the three by ½, and the one.
            assert apart.max() <= (0 if query.integral else 2)

    def test_it_travels_as_plain_values_and_comes_back_the_same(self):
        for query, _ in self.asked():
            plain = json.loads(json.dumps(query.to_json(), allow_nan=False))
            assert decode_query(plain) == query

    def test_its_answer_has_a_value_and_an_interval_for_every_key(self):
        rng = np.random.default_rng(8)
        block = block_of(records(4000, rng))
        noise = CellNoise(law="laplace", scale=1.0)
        for query, relation in self.asked():
            private = relation is Neighbouring.ADD_OR_REMOVE_ONE
            facts = QueryFacts(
                schema=SCHEMA, neighbouring=relation, records=None if private else block.records
            )
            table = query.answer(self.summed(query, block, 4096), 4096, noise, facts)
            assert list(table)[-3:] == ["value", "low", "high"]
            assert len({len(part) for part in table.values()}) == 1
            low, value, high = (np.asarray(table[name]) for name in ("low", "value", "high"))
            known = np.isfinite(value)
            assert known.any()
            assert (low[known] <= value[known]).all()
            assert (value[known] <= high[known]).all()
            assert query.compute_expected_error(4096, noise, facts) > 0


NEAR = {RegressionQuery: (0.25, 0.3)}  # a ball: of slopes that differ, with curvatures that do not
globals().update(
    {
        f"Test{kind.__name__}": type(
            f"Test{kind.__name__}",
            (QueryConformance,),
            {"examples": examples, "near": NEAR.get(kind, QueryConformance.near)},
        )
        for kind, examples in EXAMPLES.items()
    }
)


def test_every_query_is_held_to_it():
    held = {type(each) for kind in QueryConformance.__subclasses__() for each in kind.examples}
    assert held == set(QUERIES.values())


def test_a_mean_that_does_not_count_is_refused_where_the_number_of_records_is_private():
    alone = Mean(column="age", counted=False)
    alone.check(SCHEMA, Neighbouring.REPLACE_ONE)
    for query, relation in (
        (alone, Neighbouring.ADD_OR_REMOVE_ONE),
        (replace(alone, where=OLD), Neighbouring.REPLACE_ONE),
        (replace(alone, by=("sex",)), Neighbouring.REPLACE_ONE),
    ):
        with pytest.raises(ValueError, match="their number is not public"):
            query.check(SCHEMA, relation)
