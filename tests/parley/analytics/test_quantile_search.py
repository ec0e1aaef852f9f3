"""A quantile by counts: how near it comes, what its interval says, and what it costs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import parley
from parley.analytics.quantile_search import QuantileSearch
from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.count_queries import Histogram
from parley.client.queries.filters.parser import parse_where
from parley.client.queries.sum_queries import Balance
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.sampling.discrete_noise import discrete_laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity

REPLACE, REMOVE = Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE_ONE
SCHEMA = Schema.from_toml(
    """
[columns]
x = { kind = "numeric", range = [0, 1000] }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
RNG = np.random.default_rng(5)
COUNT = 10_000
COLUMNS = {
    "even": RNG.uniform(0, 1000, COUNT),
    "skew": np.clip(RNG.lognormal(4, 1, COUNT), 0, 1000),
    "apart": np.clip(
        RNG.choice([150, 800], COUNT, p=[0.3, 0.7]) + RNG.normal(0, 20, COUNT), 0, 1e3
    ),
}


class Parties(QuantileSearch):
    """A session without its ledger: counts, with their noise."""

    remaining, terms, plan, release = 1.0, None, None, None

    def __init__(self, values, relation, stream):
        facts = QueryFacts(schema=SCHEMA, neighbouring=relation, records=None)
        self.terms = SimpleNamespace(facts=facts)
        self.relation, self.stream, self.spent = relation, stream, []
        self.block = RawPartyBlock(
            schema=SCHEMA,
            columns={"x": values, "sex": np.zeros(len(values), dtype=np.intp)},
            offsets=np.array([0, len(values)]),
        )

    def ask(self, query, *, epsilon, law):
        assert law == "laplace"
        query.check(SCHEMA, self.relation)
        (counts,) = query.compute_party_vectors(self.block, 1)
        scale = compute_sensitivity(query.build_record_set(SCHEMA, 1), self.relation).l1 / epsilon
        noisy = counts + discrete_laplace(scale, len(counts), self.stream)
        records = self.block.records if self.relation is REPLACE else None
        facts = QueryFacts(schema=SCHEMA, neighbouring=self.relation, records=records)
        noise = CellNoise(law=law, scale=scale)
        self.spent.append((query, epsilon))
        table = query.answer(noisy, 1, noise, facts)
        return SimpleNamespace(table=table, law=law, scale=scale, records=records)


def found(values, seed, *, relation=REPLACE, epsilon=0.2, share=0.5, where=None):
    parties = Parties(values, relation, NoiseStream.from_seed(seed, "search"))
    one = parties.find_quantile("x", share, step=0.25, counts=8, epsilon=epsilon, where=where)
    return one, parties


@pytest.mark.parametrize("relation", [REPLACE, REMOVE])
def test_it_comes_near_and_its_interval_holds_whatever_the_shape(relation):
    errors, held = [], []
    for values in COLUMNS.values():
        for seed in range(12):
            share = (0.5, 0.2, 0.9)[seed % 3]
            one, _ = found(values, seed, relation=relation, share=share)
            below, upto = (np.sum(values < one.value + off) for off in (-0.125, 0.125))
            errors.append(max(0, below - share * COUNT, share * COUNT - upto))
            low, high = one.interval
            held.append(low - 0.25 <= np.quantile(values, share) <= high + 0.25)
            assert low <= one.value <= high
    # The last count alone is off by 1/(ε/2) = 10, on average; a tree of all values by over 90.
    assert np.median(errors) < 25
    assert sum(held) >= 34  # of 36; the seeds are fixed


@pytest.mark.parametrize("relation", [REPLACE, REMOVE])
def test_a_median_in_a_thousandth_of_the_range_is_found_too(relation):
    values = np.clip(np.random.default_rng(8).lognormal(0, 1.5, COUNT), 0, 1000)
    for seed in range(4):
        parties = Parties(values, relation, NoiseStream.from_seed(seed, "skew"))
        one = parties.find_quantile("x", 0.5, step=0.0625, epsilon=0.5)
        below, upto = (np.sum(values < one.value + off) for off in (-0.03125, 0.03125))
        # By counts that halve alone, or aim at once, it is thousands of records away.
        assert max(0, below - COUNT / 2, COUNT / 2 - upto) < 150
        assert sum(epsilon for _, epsilon in parties.spent) <= 0.5
        assert len(parties.spent) <= 7 + 16


def test_it_spends_no_more_than_it_was_given_and_asks_what_moves_by_one():
    for relation, moved in ((REPLACE, 2), (REMOVE, 1)):
        _, parties = found(COLUMNS["even"], 1, relation=relation, epsilon=0.3)
        first, *others = [query for query, _ in parties.spent]
        assert isinstance(first, Balance if relation is REPLACE else Histogram)  # which says N, too
        assert {type(query) for query in others} == {Balance}
        # In half records.
        assert {
            compute_sensitivity(query.build_record_set(SCHEMA, 1), relation).l1 for query in others
        } == {moved}
        assert 0.3 * (1 - 1e-12) < sum(epsilon for _, epsilon in parties.spent) <= 0.3
    _, parties = found(COLUMNS["even"], 1, where=parse_where("sex == 'Female'"))
    assert all(query.where is not None for query, _ in parties.spent)


def test_a_session_pays_for_it_once_and_refuses_what_it_cannot_ask(tmp_path):
    rows = {"x": COLUMNS["even"][:200], "sex": ["Male"] * 200, "sick": ["no"] * 200}
    given = {"schema": SCHEMA, "epsilon": 1.0, "seed": 3, "noise_point": "share"}
    with parley.Session([rows, rows], out=tmp_path / "s", **given) as s:
        for bad in (
            {"quantile": 0.0}, {"quantile": True}, {"counts": 0}, {"counts": True},
            {"step": 5000.0}, {"epsilon": 2.0}, {"epsilon": "1"}, {"where": "y > 1"},
        ):  # fmt: skip
            with pytest.raises((QueryError, ValueError), match="Expected"):
                s.find_quantile("x", **{"epsilon": 0.5, **bad})
        with pytest.raises(QueryError, match="numbers"):
            s.find_quantile("sex", epsilon=0.5)
        assert s.remaining == 1.0
        one = s.find_quantile("x", 0.5, epsilon=0.5)
        assert s.remaining == pytest.approx(0.5)
        assert "by 5 counts of 2 of 2 parties" in str(one)
        assert "charged ε = 0.5 in all, left 0.5 (record, replace-one; against the server" in str(
            one
        )
    with parley.Session([rows, rows], resume=tmp_path / "s") as again:
        known = again.find_quantile("x", 0.5, epsilon=0.5)
        assert (known.value, known.interval) == (one.value, one.interval)
        assert again.remaining == pytest.approx(0.5)
