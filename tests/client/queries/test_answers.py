"""Marginals, quantiles, choices and clusters: bounded as they claim, exact without noise."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from blocks import block_of_columns

from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.count_queries import Count, Histogram, MarginalsQuery
from parley.client.queries.filters.expressions import col
from parley.client.queries.kmeans import KMeansGrid, KMeansStep
from parley.client.queries.mode_query import Mode
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.query_decoding import decode_query
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sensitivity.bounded_sets import NormBounds, compute_sensitivity

REPLACE, REMOVE = Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE_ONE
SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 10] }
stay = { kind = "numeric", range = [-1, 1] }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
ward = { kind = "categorical", categories = ["a", "b", "c"], missing = "a" }
alone = { kind = "categorical", categories = ["x"], missing = "x" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


@dataclass(frozen=True)
class Normal:
    """Noise as an answer sees it."""

    deviation: float = 0.0

    def compute_half_width(self, level=0.95, *, cells=1):
        del level, cells
        return 1.96 * self.deviation

    def compute_alpha(self, level=0.95):
        return 1 - level

    def add_sampling_error(self, half, deviation, level=0.95):
        del deviation, level
        return half


def block_of(parties):
    """Parties of records (age, stay, sex, ward, sick)."""
    rows = [(*record, "x") for party in parties for record in party]
    names = ("age", "stay", "sex", "ward", "sick", "alone")
    block = block_of_columns([dict(zip(names, zip(*rows, strict=True), strict=True))], SCHEMA)
    return replace(block, offsets=np.cumsum([0, *(len(party) for party in parties)]))


EVERY = list(
    itertools.product(
        [0, 4.4, 5, 10], [-1, 0.3, 1], ["Female", "Male"], ["a", "b", "c"], ["yes", "no"]
    )
)
QUERIES = [
    MarginalsQuery(of=("sex", "ward", "sick")),
    MarginalsQuery(of=("sex", "ward", "sick"), ways=1),
    MarginalsQuery(of=("sex", "ward"), where=col.age > 4),
    Quantiles(column="age", quantiles=(0.1, 0.5), step=1.0),
    Quantiles(column="age", by=("sex",), step=5.0),
    Quantiles(column="age", where=col.sex == "Male", branching=4),
    Mode(column="ward"),
    Mode(column="ward", by=("sex",), where=col.age > 4),
    KMeansGrid(of=("age", "stay"), clusters=3, grid=4),
]


@pytest.mark.parametrize(("of", "ways", "l1", "l2"), [(8, 2, 56, 56), (8, 1, 16, 16), (3, 2, 6, 6)])
def test_marginals_of_eight_columns(of, ways, l1, l2):
    names = tuple(f"c{k}" for k in range(of))
    kind = '{ kind = "categorical", categories = ["a", "b"], missing = "a" }'
    label = 'y = {kind="label", classes=[0, 1]}'
    schema = Schema.from_toml("\n".join(["[columns]", *(f"{c} = {kind}" for c in names), label]))
    moved = compute_sensitivity(
        MarginalsQuery(of=names, ways=ways).build_record_set(schema, 1), REPLACE
    )
    assert moved == NormBounds(l1, l2)


@pytest.mark.parametrize(
    ("cells", "branching", "l1"), [(129, 2, 16), (16384, 2, 28), (16384, 4, 14)]
)
def test_the_sensitivity_of_a_tree(cells, branching, l1):
    query = Quantiles(column="age", step=10 / (cells - 1), branching=branching)
    assert compute_sensitivity(query.build_record_set(SCHEMA, 1), REPLACE) == NormBounds(l1, l1)


def test_every_party_counts_its_own_records_in_every_group():
    one = [(5, 0, "Male", "a", "no"), (5, 0, "Male", "c", "no"), (5, 0, "Female", "b", "no")]
    block = block_of([one, one[2:]])
    vectors = [v.tolist() for v in Count(by=("sex", "ward")).compute_party_vectors(block, 5)]
    assert vectors == [[0, 5, 0, 5, 0, 5], [0, 5, 0, 0, 0, 0]]


def test_a_count_of_all_is_public_under_replace_one():
    with pytest.raises(QueryError, match="Expected where or group_by"):
        Count().check(SCHEMA, REPLACE)
    Count().check(SCHEMA, REMOVE)


def facts(records, relation=REPLACE):
    return QueryFacts(schema=SCHEMA, neighbouring=relation, records=records)


def asked(query, records, *, deviation=0.0, weight=5, relation=REPLACE, rng=None):
    """The answer, with normal noise of this deviation on the counts."""
    return next(
        asking(query, records, deviation=deviation, weight=weight, relation=relation, rng=rng)
    )


def asking(query, records, *, deviation=0.0, weight=5, relation=REPLACE, rng=None):
    """The same again and again."""
    (exact,) = query.compute_party_vectors(block_of([records]), weight)
    public = len(records) if relation is REPLACE else None
    while True:
        noise = (
            np.zeros(exact.shape) if rng is None else rng.normal(0, deviation * weight, exact.shape)
        )
        noisy = (exact + np.rint(noise)).astype(np.int64)
        yield query.answer(noisy, weight, Normal(deviation * weight), facts(public, relation))


@pytest.mark.parametrize("relation", [REPLACE, REMOVE])
@pytest.mark.parametrize("branching", [2, 4, 32])
def test_without_noise_a_quantile_is_the_first_value_that_reaches_its_share(relation, branching):
    rng = np.random.default_rng(2)
    records = [(x, 0, "Male", "a", "no") for x in np.round(rng.beta(2, 5, 101) * 10, 2)]
    query = Quantiles(
        column="age", quantiles=(0.0, 0.1, 0.5, 0.9, 1.0), step=0.01, branching=branching
    )
    found = asked(query, records, relation=relation)
    ages = np.sort([r[0] for r in records])
    expected = [0.0, *ages[[10, 50, 90, 100]]]
    np.testing.assert_allclose(found["value"], expected, atol=1e-9)
    np.testing.assert_allclose(found["low"], found["high"], atol=1e-9)
    assert found["quantile"].tolist() == [0.0, 0.1, 0.5, 0.9, 1.0]


def test_quantiles_of_groups_are_those_of_their_records():
    records = [(k, 0, "Male", "a", "no") for k in range(5)] + [(9, 0, "Female", "a", "no")] * 3
    found = asked(Quantiles(column="age", by=("sex",), step=1.0), records)
    assert list(found["sex"]) == ["Female", "Male"]
    assert found["value"].tolist() == [9.0, 2.0]


@pytest.mark.parametrize(
    "query",
    [
        Quantiles(column="age", quantiles=(0.1, 0.5, 0.9), step=0.01),
        Quantiles(column="age", quantiles=(0.1, 0.5, 0.9), step=0.01, where=col.sex == "Male"),
    ],
)
def test_a_quantiles_interval_covers_the_value_without_noise(query):
    rng = np.random.default_rng(3)
    records = [(x, 0, "Male", "a", "no") for x in np.round(rng.beta(2, 5, 3000) * 10, 2)]
    truth = asked(query, records)["value"]
    covered, widths = [], []
    for found in itertools.islice(asking(query, records, deviation=10.0, rng=rng), 120):
        covered.append((found["low"] <= truth) & (truth <= found["high"]))
        widths.append(found["high"] - found["low"])
        assert (found["low"] <= found["value"]).all()
        assert (found["value"] <= found["high"]).all()
    assert 0.92 <= np.mean(covered) <= 1.0  # a grid's value is in or out as a whole
    assert np.mean(widths) < 0.5


def test_without_noise_marginals_are_the_tables():
    records = [EVERY[k] for k in np.random.default_rng(4).integers(0, len(EVERY), 50)]
    found = asked(MarginalsQuery(of=("sex", "ward")), records)
    cells = list(zip(found["sex"], found["ward"], found["value"], strict=True))
    for sex, ward, value in cells:
        assert value == pytest.approx(sum(r[2] == sex and r[3] == ward for r in records))
    one = asked(MarginalsQuery(of=("sex", "ward"), ways=1), records)
    assert one["table"] == ["sex"] * 2 + ["ward"] * 3
    assert one["ward"][:3] == [None, None, "a"]
    assert one["value"][:2].sum() == pytest.approx(50)
    assert one["value"][2:].sum() == pytest.approx(50)


def test_a_histogram_says_that_its_outer_intervals_hold_what_is_beyond_the_edges():
    records = [(age, 0, "Male", "a", "no") for age in (0, 1, 4, 6, 10)]
    found = asked(Histogram(column="age", edges=(2.0, 5.0, 6.5)), records)
    assert found["age from"].tolist() == [0, 5]
    assert found["age to"].tolist() == [5, 10]
    assert found["value"].tolist() == [3, 2]


def test_the_winner_is_the_commonest_and_says_by_how_much():
    records = [(1, 0, "Male", ward, "no") for ward in "abbbcc"] + [(1, 0, "Female", "c", "no")] * 2
    found = asked(Mode(column="ward", by=("sex",)), records)
    assert list(found["ward"]) == ["c", "b"]
    assert found["lead"].tolist() == [2.0, 1.0]
    assert found["value"].tolist() == [2.0, 3.0]


def test_clusters_far_apart_are_found_on_the_grid():
    rng = np.random.default_rng(5)
    middles = [(2, -0.6), (8, -0.6), (5, 0.7)]
    records = [
        (*np.clip([rng.normal(a, 0.4), rng.normal(b, 0.08)], [0, -1], [10, 1]), "Male", "a", "no")
        for k, (a, b) in enumerate(middles)
        for _ in range(300 - 50 * k)
    ]
    found = asked(
        KMeansGrid(of=("age", "stay"), clusters=3, grid=24), records, deviation=2.0, rng=rng
    )
    assert found["age"] == pytest.approx([2, 8, 5], abs=0.3)
    assert found["stay"] == pytest.approx([-0.6, -0.6, 0.7], abs=0.06)
    assert found["value"] == pytest.approx([300, 250, 200], abs=30)
    empty = asked(KMeansGrid(of=("age",), clusters=2, grid=4, where=col.age > 9), records[:1])
    assert len(empty["age"]) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: MarginalsQuery(of=("sex",)),
        lambda: MarginalsQuery(of=("sex", "sex")),
        lambda: MarginalsQuery(of=("sex", "ward"), ways=0),
        lambda: MarginalsQuery(of=("sex", "ward"), by=("sick",)),
        lambda: MarginalsQuery(of=("sex", "age")).check(SCHEMA, REPLACE),
        lambda: MarginalsQuery(of=("sex", "wrad")).check(SCHEMA, REPLACE),
        lambda: Quantiles(column="age", quantiles=(1.5,)),
        lambda: Quantiles(column="age", quantiles=(math.nan,)),
        lambda: Quantiles(column="age", quantiles=()),
        lambda: Quantiles(column="age", quantiles=(0.5, 0.5)),
        lambda: Quantiles(column="age", step=-1.0),
        lambda: Quantiles(column="age", step=math.nan),
        lambda: Quantiles(column="age", branching=1),
        lambda: Quantiles(column="age", step=11.0).check(SCHEMA, REPLACE),
        lambda: Quantiles(column="age", step=1e-9).check(SCHEMA, REPLACE),
        lambda: Quantiles(column="sex").check(SCHEMA, REPLACE),
        lambda: Mode(column="age").check(SCHEMA, REPLACE),
        lambda: Mode(column="alone").check(SCHEMA, REPLACE),
        lambda: Mode(column="sex", by=("sex",)),
        lambda: KMeansGrid(of=("age",), clusters=0).check(SCHEMA, REPLACE),
        lambda: KMeansGrid(of=("age",), clusters=5, grid=4).check(SCHEMA, REPLACE),
        lambda: KMeansGrid(of=(), clusters=1).check(SCHEMA, REPLACE),
        lambda: KMeansGrid(of=("age", "age"), clusters=1).check(SCHEMA, REPLACE),
        lambda: KMeansGrid(of=("age", "sex"), clusters=1).check(SCHEMA, REPLACE),
        lambda: KMeansGrid(of=("age",), clusters=1, grid=1),
        lambda: KMeansGrid(of=("age",), clusters=1, by=("sex",)),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_was_expected(make):
    with pytest.raises((QueryError, SchemaError), match=r"Expected .*, got "):
        make()


@pytest.mark.parametrize("query", [*QUERIES, Count(by=("sex",))], ids=str)
def test_a_peers_query_has_every_key_and_no_other(query):
    good = query.to_json()
    for bad in (
        *(None, {}, {**good, "query": "everything"}, {**good, "more": 1}, {**good, "by": [1]}),
        *({**good, "by": "sex"}, {**good, "by": ["sex", "sex"]}, {**good, "by": ["s"] * 65}),
        *({k: v for k, v in good.items() if k != gone} for gone in good),
    ):
        with pytest.raises(DecodingError):
            decode_query(bad)


def test_a_group_that_may_be_empty_has_no_quantile_rather_than_a_sure_one():
    records = [(k % 10, 0, "Male", "a", "no") for k in range(200)]
    rng = np.random.default_rng(6)
    query = Quantiles(column="age", by=("sex",), step=0.5)
    silent = []
    for found in itertools.islice(asking(query, records, deviation=3.0, rng=rng), 60):
        told = [found[name][0] for name in ("value", "low", "high")]
        silent.append(np.isnan(told).all())
        assert found["low"][1] <= found["value"][1] <= found["high"][1]
    assert np.mean(silent) >= 0.9  # noise alone looks like records in 2.5 %


def test_quantiles_are_on_the_schemas_own_steps():
    text = '[columns]\nage = { kind = "numeric", range = [0, 90], step = 1 }\n'
    text += 'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    schema = Schema.from_toml(text)
    assert Quantiles(column="age", branching=91).count_cells(schema) == 91
    assert Quantiles(column="age", step=2, branching=46).count_cells(schema) == 46
    rows = {"age": [3, 3, 7], "sick": ["no"] * 3}
    (vector,) = Quantiles(column="age").compute_party_vectors(block_of_columns([rows], schema), 1)
    assert vector[3] == 2
    assert vector[7] == 1


def test_a_record_that_is_gone_moves_no_other_records_cluster():
    """Centres that tie up to the last bits: a product's shape would decide for all records."""
    text = "[columns]\n"
    text += "".join(f'a{k} = {{ kind = "numeric", range = [-1, 1] }}\n' for k in range(9))
    text += 'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    schema = Schema.from_toml(text)
    rng = np.random.default_rng(5)
    names = tuple(f"a{k}" for k in range(9))
    for _ in range(40):
        centre = rng.uniform(-0.9, 0.9, 9)
        centres = [centre, centre * (1 + 2**-52), np.nextafter(centre, 0), -centre]
        query = KMeansStep(of=names, centres=tuple(np.concatenate(centres).tolist()))
        rows = {name: rng.uniform(-1, 1, 67) for name in names} | {"sick": ["no"] * 67}
        gone = int(rng.integers(67))
        kept = {name: [v for k, v in enumerate(part) if k != gone] for name, part in rows.items()}
        one, two = (
            next(iter(query.compute_party_vectors(block_of_columns([data], schema), 4096)))
            for data in (rows, kept)
        )
        moved = query.build_record_set(schema, 4096).radius
        assert np.abs(one - two).sum() <= moved.l1
        assert np.square(one - two).sum() <= moved.l2_squared
