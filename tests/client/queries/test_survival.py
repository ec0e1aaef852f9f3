"""Survival: known answers of lifelines, what noise makes of them, and what cannot be asked."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import block_of_columns

from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.filters.expressions import col
from parley.client.queries.survival import Survival
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.estimation.survival import LifeTable

TIME = '{{ kind = "numeric", range = [{}, {}], outside = "{}" }}'


def schema_of(low=0, high=8, outside="refuse"):
    return Schema.from_toml(
        f"""
[columns]
week = {TIME.format(low, high, outside)}
died = {{ kind = "numeric", range = [0, 1] }}
arm = {{ kind = "categorical", categories = ["old", "new"], missing = "old" }}
sick = {{ kind = "label", positive = "yes", negative = "no" }}
"""
    )


SCHEMA = schema_of()
# Week, event, arm: 16 records made up for this test.
ROWS = [
    *((1, 1, "old"), (2, 1, "old"), (2, 0, "old"), (3, 1, "old"), (4, 1, "old"), (4, 1, "old")),
    *((6, 0, "old"), (8, 1, "old"), (1, 0, "new"), (3, 1, "new"), (4, 0, "new"), (5, 1, "new")),
    *((7, 1, "new"), (8, 0, "new"), (8, 0, "new"), (8, 1, "new")),
]
EXACT = CellNoise(law="laplace", scale=0.01)  # a deviation of 10⁻²¹


def block(rows=ROWS, schema=SCHEMA):
    week, died, arm = zip(*rows, strict=True)
    sick = ["yes" if each else "no" for each in died]
    columns = {"week": map(float, week), "died": map(float, died), "arm": arm, "sick": sick}
    return block_of_columns([{name: list(part) for name, part in columns.items()}], schema)


def told(query, given, noise=EXACT, added=0):
    (vector,) = query.compute_party_vectors(given, 1)
    facts = QueryFacts(
        schema=given.schema, neighbouring=Neighbouring.REPLACE_ONE, records=given.records
    )
    noisy = vector + added
    return query.answer(noisy, 1, noise, facts), query.derive_tables(noisy, 1, noise, facts)


OLD = [0.875, 0.75, 0.6, 0.3, 0.3, 0.3, 0.3, 0.0]
NEW = [1.0, 1.0, 6 / 7, 6 / 7, 0.6857142857142857, 0.6857142857142857, 0.5142857142857143,
       0.3428571428571429]  # fmt: skip
OLD_HAZARD = [0.125, 0.26785714285714285, 0.46785714285714286, *[0.9678571428571429] * 4,
              1.967857142857143]  # fmt: skip
OLD_DEVIATIONS = [0.11692679333668568, 0.15309310892394862, 0.18165902124584954,
                  *[0.17535677916750186] * 4]  # fmt: skip
BY_ARM = Survival(column="week", event="died", bins=8, by=("arm",))


def test_without_noise_it_is_what_lifelines_says_of_the_pooled_rows():
    """lifelines 0.30.3: KaplanMeierFitter, NelsonAalenFitter(nelson_aalen_smoothing=False),
    median_survival_time_, logrank_test. Greenwood: SurvfuncRight of statsmodels 0.15.0."""
    table, beside = told(BY_ARM, block())
    old, new = np.split(np.asarray(table["value"]), 2)
    assert old == pytest.approx(OLD, abs=1e-9)
    assert new == pytest.approx(NEW, abs=1e-9)
    assert table["at risk"].tolist() == [8, 7, 5, 4, 2, 2, 1, 1, 8, 7, 7, 6, 5, 4, 4, 3]
    hazard = np.split(np.asarray(beside["cumulative hazard"]["value"]), 2)
    assert hazard[0] == pytest.approx(OLD_HAZARD, abs=1e-9)
    assert beside["median survival"]["value"].tolist() == [4, 8]
    test = beside["log-rank test"]
    assert test["chi-squared"][0] == pytest.approx(2.859246073995209, abs=1e-9)
    assert test["p"][0] == pytest.approx(0.09085007059371773, abs=1e-9)
    sampled, _ = told(BY_ARM, block(), CellNoise(law="laplace", scale=0.01, sampling=True))
    low = np.maximum(np.array(OLD[:7]) - 1.959964 * np.array(OLD_DEVIATIONS), 0)
    assert np.asarray(sampled["low"])[:7] == pytest.approx(low, abs=1e-6)


def test_three_groups_are_tested_together():
    """lifelines 0.30.3: multivariate_logrank_test of the same counts as rows."""
    counts = [[3, 2, 4, 1, 0, 1, 0, 2, 5], [5, 4, 1, 2, 0, 0, 2, 1, 3], [1, 1, 2, 2, 0, 2, 1, 0, 9]]
    test = LifeTable(np.array(counts, dtype=float)).run_log_rank_test()
    assert (test.chi_squared, test.degrees) == (pytest.approx(5.40613525422284), 2)
    assert test.p == pytest.approx(0.06699966717696977)


def test_who_is_seen_past_the_middle_of_an_interval_is_at_risk_in_it_and_nobody_beyond_the_end():
    """Edges 0, 2, 4; times in (a, b]; an event after 4 is censored at 4."""
    rows = [(0, 1), (2, 1), (2.01, 1), (4, 1), (4.5, 1), (8, 0), (0.99, 0), (1, 0), (2.9, 0)]
    query = Survival(column="week", event="sick", occurred="yes", edges=(0.0, 2.0, 4.0))
    (vector,) = query.compute_party_vectors(block([(*row, "old") for row in rows]), 1)
    #       events    never, in one, to the end
    assert vector.tolist() == [2, 2, 1, 2, 2]
    table, _ = told(query, block([(*row, "old") for row in rows]))
    assert table["at risk"].tolist() == [8, 4]  # of 9 one was never at risk


COUNTS = np.array([[30, 25, 20, 15, 5, 10, 15, 20, 160], [45, 30, 20, 20, 5, 10, 15, 20, 135.0]])
"""Of two groups of 300 in four intervals."""
DRAWS = 2000


def drawn(deviation, counts=COUNTS, *, seed=3, draws=DRAWS):
    """Life tables with fresh noise; the total is public."""
    noise = np.random.default_rng(seed).normal(0, deviation, (draws, *counts.shape))
    for each in counts + noise:
        yield LifeTable(each, deviation=deviation, total=float(counts.sum()))


@pytest.mark.parametrize("what", ["survival", "hazard"])
def test_deviations_by_noise_are_those_of_draws(what):
    """A right scale is within a tenth; ⅔ and 1½ of it are not."""
    values = np.array([getattr(each, what).value for each in drawn(3.0)])
    said = 3.0 * getattr(LifeTable(COUNTS, total=600.0), what).noise
    assert values.std(axis=0) / said == pytest.approx(np.ones_like(said), abs=0.1)


def test_a_log_rank_test_keeps_its_level_where_noise_is_as_large_as_sampling():
    """1,200 draws of two groups with one curve: 5 % of p below .05, ± four deviations."""
    rng, found = np.random.default_rng(8), []
    shares = np.array([0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.4])
    for _ in range(1200):
        counts = np.array([rng.multinomial(300, shares), rng.multinomial(250, shares)])
        noisy = counts + rng.normal(0, 6.0, counts.shape)
        found.append(LifeTable(noisy, deviation=6.0, total=550.0).run_log_rank_test().p)
    assert abs(np.mean(np.array(found) < 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1200)
    # Taken for exact counts, far more are.
    blind = [
        LifeTable(each.counts).run_log_rank_test().p
        for each in drawn(9.0, COUNTS[[0, 0]], draws=300)
    ]
    assert np.mean(np.array(blind) < 0.05) > 0.1


def test_whatever_the_noise_a_curve_falls_and_no_more_die_than_are_at_risk():
    rng = np.random.default_rng(4)
    for scale in (0.5, 3.0, 30.0):
        noise = CellNoise(law="laplace", scale=scale, sampling=True)
        added = np.rint(rng.laplace(0, scale, 34)).astype(np.int64)
        table, beside = told(BY_ARM, block(ROWS * 20), noise, added)
        for curve in np.split(np.asarray(table["value"]), 2):
            known = curve[np.isfinite(curve)]
            assert (np.diff(known) <= 1e-12).all()
            assert ((known >= 0) & (known <= 1)).all()
        assert (table["events"] <= table["at risk"]).all()
        risks = np.split(table["at risk"], 2)
        assert all((np.diff(each) <= 0).all() for each in risks)
        assert (beside["precision of the curve"]["records for ±0.05"] > 0).all()


def test_a_group_without_records_has_no_curve_and_is_told_how_many_it_takes():
    """And is not tested: there is no other group."""
    rows = [row for row in ROWS if row[2] == "old"] * 100
    noise = CellNoise(law="laplace", scale=2.0)
    table, beside = told(BY_ARM, block(rows), noise, np.tile([1, -1], 17))
    assert np.isfinite(table["value"][:7]).all()
    assert np.isnan(table["value"][8:]).all()
    assert np.isnan(beside["log-rank test"]["p"][0])
    precision = beside["precision of the curve"]
    few, many = precision["records for ±0.05"][::-1]
    assert many < 800 < few * 10
    assert np.isnan(precision["noise ± at most"][1])


@pytest.mark.parametrize(
    ("change", "schema", "said"),
    [
        ({}, schema_of(low=-1), "Expected a time from 0 on, got 'week' in \\[-1, 8\\]"),
        ({}, schema_of(outside="clamp"), "an event beyond the range"),
        ({"end": 9.0}, SCHEMA, "Expected an end within"),
        ({"bins": 0, "edges": (0.0, 9.0)}, SCHEMA, "Expected an end within"),
        ({"column": "arm"}, SCHEMA, "Expected a column of numbers"),
        ({"event": "arm"}, SCHEMA, "Expected occurred to name the event, one of 'old', 'new'"),
        ({"event": "arm", "occurred": "dead"}, SCHEMA, "of 'arm', got 'dead'"),
        ({"occurred": "yes"}, SCHEMA, "without it, got 'died'"),
        ({"where": col.week > 1, "event": "week2"}, SCHEMA, "Expected a column of"),
    ],
)
def test_what_has_no_curve_is_refused_by_name(change, schema, said):
    query = Survival(**{"column": "week", "event": "died", "bins": 8, **change})
    with pytest.raises(ValueError, match=said):
        query.check(schema, Neighbouring.REPLACE_ONE)


@pytest.mark.parametrize(
    "change",
    [{}, {"bins": 8, "edges": (0.0, 1.0)}, {"edges": (1.0, 2.0)}, {"edges": (0.0, 2.0, 2.0)},
     {"bins": 1000}, {"bins": 3, "by": ("died",)}, {"bins": -1}],
)  # fmt: skip
def test_intervals_that_are_none_are_refused(change):
    with pytest.raises(QueryError, match="Expected"):
        Survival(column="week", event="died", **change)
