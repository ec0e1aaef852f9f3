"""Refusals of whole files, schemas and hidden scores: in words, and nothing is charged."""

import numpy as np
import pytest

import parley
from parley.analytics.query_file import load_queries
from parley.client.data.schema import Schema, SchemaError
from parley.client.queries.base import QueryError

TEXT = """
[columns]
age = { kind = "numeric", range = [0, 100] }
share = { kind = "numeric", range = [0, 1] }
part = { kind = "numeric", range = [0, 1] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
ROWS = {"age": np.arange(50.0), "share": [0.5] * 50, "part": [0.2] * 50, "sick": ["yes"] * 50}
HOW = {"schema": Schema.from_toml(TEXT), "epsilon": 1.0}


def test_a_number_without_a_range_has_no_sum_and_no_schema():
    with pytest.raises(SchemaError, match=r"columns\.age\.range, got none"):
        Schema.from_toml(TEXT.replace(", range = [0, 100]", ""))


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (2 * '[[query]]\nquery = "mean"\nname = "a"\ncolumn = "age"\nepsilon = 0.1\n', "once"),
        ("", r"at least one \[\[query\]\]"),
        ('[[query]]\nquery = "mean"\ncolumn = "age"\n', "Expected epsilon"),
        ('[[query]]\nquery = "mean"\ncolumn = "age"\nepsilon = true\n', "epsilon as a float"),
        ('[[query]]\nquery = "mean"\ncolumn = "age"\nepsilon = 0.1\nby = "sex"\n', "by"),
        ('[[query]]\nquery = "mode"\nepsilon = 0.1\n', "Expected a query of"),
        ('[[query]]\nquery = "mean"\ncolumn = "age"\nepsilon = 0.1\nbins = 3\n', "'bins'"),
        ('[[query]]\nquery = "count"\nwhere = 3\nepsilon = 0.1\n', "where as a text"),
    ],
)
def test_a_file_that_says_no_question_is_refused_before_any_session(tmp_path, queries, said):
    path = tmp_path / "queries.toml"
    path.write_text(f'[session]\ndata = "x.csv"\nschema = "s.toml"\nepsilon = 1.0\n{queries}')
    with pytest.raises(QueryError, match=said):
        load_queries(path)


def test_scores_that_a_server_would_have_to_see_do_not_go_with_hidden_sums(tmp_path):
    with parley.Session([ROWS, ROWS], out=tmp_path / "s", noise_point="share", **HOW) as s:
        for law in ("exponential", "permute-and-flip"):
            with pytest.raises(QueryError, match="Expected"):
                s.choose_best(["share", "part"], law=law, epsilon=0.5)
        assert s.remaining == 1.0
        assert s.choose_best(["share", "part"], epsilon=0.5).table["winner"] == ["share"]
