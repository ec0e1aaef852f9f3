"""A study in one file: its figures beside the pooled rows', here and among real parties."""

import runpy
import sys
from pathlib import Path

import polars as pl
import pytest

from parley.client.data.data_error import DataError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FIRST = (
    "ε = 2.04985 for all of it at δ = 1e-06 (8 queries in 6 releases; record, replace-one; against "
)


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(EXAMPLES))
    yield runpy.run_path(str(EXAMPLES / "study.py"))
    sys.path.remove(str(EXAMPLES))


def test_its_figures_are_those_of_the_pooled_rows(study, tmp_path):
    rows = study["people"](None)
    text, answers = study["simulated"](rows, tmp_path / "s", seed=1)
    assert text.startswith(FIRST)
    figures = list(sys.modules["study_pooled"].pooled(rows, answers))
    assert len(figures) == 2 * (1 + 5 + 2 + 3 + 7) + 2 * 12 + 3
    inside = [each.low <= each.true <= each.high for each in figures if each.value == each.value]
    assert sum(inside) > 0.85 * len(figures)
    files = sorted(path.name for path in (tmp_path / "s").rglob("*.csv"))
    assert files == [
        "hazard-ratios-precision.csv",
        "hazard-ratios.csv",
        "survival-cumulative-hazard.csv",
        "survival-log-rank-test.csv",
        "survival-median-survival.csv",
        "survival-precision-of-the-curve.csv",
        "survival.csv",
        "table-one.csv",
    ]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"days": pl.lit(-1)}, "-1"),
        ({"days": pl.lit(6000)}, "6000"),
        ({"days": pl.lit("ten")}, "days"),
        ({"flc": pl.lit("7.2")}, "flc"),
    ],
)
def test_rows_that_are_not_the_schemas_are_refused_by_name_and_cost_nothing(
    study, tmp_path, edit, said
):
    rows = study["people"](None).with_columns(**edit)
    with pytest.raises(DataError, match=said):
        study["simulated"](rows, tmp_path / "s")
    assert not list(tmp_path.rglob("ledger.sqlite"))


def test_a_group_without_records_is_left_out(study, tmp_path):
    rows = study["people"](None).filter(pl.col("flc") == "< 4.72")
    text, answers = study["simulated"](rows, tmp_path / "s", seed=2)
    assert "Left out, because they have fewer records than their noise: ≥ 4.72" in text
    (curve,) = (each for each in answers if each["name"] == "survival")
    assert curve["beside"]["log-rank test"]["degrees of freedom"] == [0]


@pytest.mark.heavy
def test_five_real_parties_answer_it(study):
    text = study["main"]()
    assert text.startswith(FIRST + "the server and those who collude with it)")
    for said in (
        "5 of 5 parties",
        "log-rank test",
        "hazard ratio",
        "Beside the pooled rows",
        "alive",
    ):
        assert said in text
