"""SQL: what it means as queries, and what is refused by its name."""

from __future__ import annotations

import numpy as np
import pytest

import parley
from parley import col
from parley.analytics.sql_queries import parse_sql
from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import QueryError
from parley.client.queries.correlations import CorrelationsQuery
from parley.client.queries.count_queries import Count
from parley.client.queries.filters.expressions import WhereError
from parley.client.queries.moments import Mean, Variance
from parley.client.queries.quantiles import Quantiles
from parley.client.queries.sum_queries import ColumnSum

pytest.importorskip("sqlglot", reason="needs the extra parley[sql]")
SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
"capital-gain" = { kind = "numeric", range = [0, 10] }
sex = { kind = "categorical", categories = ["Female", "Male"] }
ward = { kind = "categorical", categories = ["a", "b"], missing = "a" }
smoker = { kind = "categorical", categories = [true, false], missing = false }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


def test_every_aggregate_is_a_query_of_one_batch():
    found = parse_sql(
        'SELECT sex, COUNT(*) AS n, AVG(age), SUM("capital-gain"), VARIANCE(age), MEDIAN(age), '
        'QUANTILE(age, 0.9), CORR(age, "capital-gain") FROM ward WHERE age > 60 GROUP BY sex',
        SCHEMA,
    )
    rest = {"where": col.age > 60, "by": ("sex",)}
    assert found.table == "ward"
    assert found.queries == (
        Count(**rest),
        Mean(column="age", **rest),
        ColumnSum(column="capital-gain", **rest),
        Variance(column="age", **rest),
        Quantiles(column="age", **rest),
        Quantiles(column="age", quantiles=(0.9,), **rest),
        CorrelationsQuery(of=("age", "capital-gain"), **rest),
    )
    assert found.names[:2] == ("n", "AVG(age)")


EMPTY = col.sex.is_null()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("age > 60", col.age > 60),
        ("60 >= age", col.age <= 60),
        ("age BETWEEN 18 AND 65.5", (col.age >= 18) & (col.age <= 65.5)),
        ("age NOT BETWEEN 18 AND 65", (col.age < 18) | (col.age > 65)),
        ("age > -1", col.age > -1),
        ("sex = 'Female'", col.sex == "Female"),
        ("sex <> 'Female'", (col.sex != "Female") & ~EMPTY),
        ("NOT sex = 'Female'", (col.sex != "Female") & ~EMPTY),
        ("ward != 'a'", col.ward != "a"),  # is never empty
        ("sex NOT IN ('Female')", ~col.sex.is_in(["Female"]) & ~EMPTY),
        ("sex IN ('Female', 'Male')", col.sex.is_in(["Female", "Male"])),
        ("sex IS NULL", EMPTY),
        ("sex IS NOT NULL", ~EMPTY),
        ("smoker = TRUE", col.smoker == True),  # noqa: E712 - a condition
        ("NOT (age > 60 OR ward = 'a')", (col.age <= 60) & (col.ward != "a")),
        (
            "age > 60 AND (ward = 'a' OR age < 70)",
            (col.age > 60) & ((col.ward == "a") | (col.age < 70)),
        ),
    ],
)
def test_conditions_mean_what_sql_means(condition, expected):
    (query,) = parse_sql(f"SELECT COUNT(*) FROM t WHERE {condition}", SCHEMA).queries
    assert query.where == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT MIN(age) FROM t", "whole range"),
        ("SELECT MAX(age) FROM t", "whole range"),
        ("SELECT STDDEV(age) FROM t", "STDDEV"),
        ("SELECT age FROM t", "records are never shown"),
        ("SELECT * FROM t", "[*]"),
        ("SELECT COUNT(age) FROM t", "COUNT"),
        ("SELECT COUNT(DISTINCT age) FROM t", "DISTINCT"),
        ("SELECT AVG(age + 1) FROM t", "age [+] 1"),
        ("SELECT COUNT(*) + 1 FROM t", "[+] 1"),
        ("SELECT COUNT(*) FROM t JOIN u ON t.a = u.a", "JOINS"),
        ("SELECT COUNT(*) FROM t, u", "JOINS"),
        ("SELECT COUNT(*) FROM (SELECT * FROM t)", "a subquery or no table"),
        ("SELECT COUNT(*)", "a subquery or no table"),
        ("SELECT COUNT(*) FROM t GROUP BY sex HAVING COUNT(*) > 1", "HAVING"),
        ("SELECT COUNT(*) FROM t ORDER BY sex", "ORDER"),
        ("SELECT COUNT(*) FROM t LIMIT 1", "LIMIT"),
        ("SELECT DISTINCT COUNT(*) FROM t", "DISTINCT"),
        ("WITH x AS (SELECT 1) SELECT COUNT(*) FROM x", "WITH"),
        ("SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM t", "UNION"),
        ("SELECT COUNT(*) OVER (PARTITION BY sex) FROM t", "OVER"),
        ("SELECT sex FROM t GROUP BY sex", "only columns"),
        ("SELECT COUNT(*), COUNT(*) FROM t", "distinct names"),
        ("SELECT QUANTILE(age, 2) FROM t", "quantiles in"),
        ("SELECT QUANTILE(age, sex) FROM t", "QUANTILE"),
        ("SELECT CORR(age, sex) FROM t", "'sex', of categories"),
        ("SELECT CORR(age, age) FROM t", "distinct columns"),
        ("SELECT COUNT(*) FROM t GROUP BY age + 1", "column's name"),
        ("SELECT COUNT(*) FROM t GROUP BY 1", "column's name"),
        ("SELECT COUNT(*) FROM t WHERE age > sex", "constant"),
        ("SELECT COUNT(*) FROM t WHERE age + 1 > 2", "column's name"),
        ("SELECT COUNT(*) FROM t WHERE ABS(age) > 2", "column's name"),
        ("SELECT COUNT(*) FROM t WHERE age IN (SELECT 1)", "comparisons"),
        ("SELECT COUNT(*) FROM t WHERE sex LIKE 'F%'", "comparisons"),
        ("SELECT COUNT(*) FROM t WHERE t.age > 2", "column's name"),
        ("SELECT COUNT(*) FROM t WHERE TRUE", "comparisons"),
        ("SELECT COUNT(*) FROM t WHERE age = NULL", "constant"),
        ("SELECT COUNT(*) FROM t; DROP TABLE t", "2"),
        ("DROP TABLE t", "DROP"),
        ("", "one SELECT"),
        ("SELECT AVG(Alter) FROM t", 'SQL keyword in double quotes: "Alter"'),
        ("SELECT FROM WHERE", "one SELECT|only columns"),
        ("SELECT COUNT(*) FROM t WHERE (", "error"),
        ("SELECT COUNT(*) FROM t WHERE " + "(" * 3000, "error"),
        ("SELECT COUNT(*) FROM t WHERE " + "NOT " * 900 + "age > 1", "error|levels"),
        ("SELECT COUNT(*) FROM t WHERE " + " OR ".join(["age > 1"] * 80), "64 parts"),
        ("SELECT COUNT(*) FROM t WHERE age > 1" + " " * 5000, "4096"),
    ],
)
def test_anything_else_is_refused_by_its_name(text, named):
    with pytest.raises((QueryError, WhereError, SchemaError), match=named):
        parse_sql(text, SCHEMA)


def test_a_statement_is_one_sum_for_one_price(tmp_path):
    rng = np.random.default_rng(1)
    data = {
        "age": np.arange(2000) // 20,
        "capital-gain": np.arange(2000) / 200,
        "sex": rng.choice(["Female", "Male"], 2000),
        "ward": ["a"] * 2000,
        "smoker": [True] * 2000,
        "sick": ["no"] * 2000,
    }
    with parley.Session(
        data, schema=SCHEMA, parties=4, epsilon=100, seed=1, out=tmp_path / "s"
    ) as s:
        asked = 'COUNT(*) AS n, AVG(age), CORR(age, "capital-gain") AS r'
        frame = s.sql(f"SELECT sex, {asked} FROM ward WHERE age > 60 GROUP BY sex", epsilon=95)
        assert frame.columns == ["sex"] + [
            f"{name}{end}" for name in ("n", "AVG(age)", "r") for end in ("", " low", " high")
        ]
        assert (frame["r low"][:2] < 0.9999).all()
        assert (frame["r high"][:2] > 0.9999).all()
        old = data["age"] > 60
        assert frame["n"][0] == pytest.approx(np.sum(old & (data["sex"] == "Female")), abs=8)
        assert frame["AVG(age)"][0] == pytest.approx(80.5, abs=2)
        with pytest.raises(QueryError):
            s.sql("SELECT MAX(age) FROM ward", epsilon=1)
        assert s.remaining == 5
