"""Columns that are read together have the profiles that they have alone."""

import numpy as np
import polars as pl
import pytest

from parley.client.data.schema_inference import column_profile, schema_draft
from parley.client.data.schema_inference.column_profile import (
    read_column_profile,
    read_text_cells,
)
from parley.client.data.schema_inference.schema_draft import infer_schema

COLUMNS = [
    ["1", "2", "3"],
    ["1.5", " 2", "3"],
    ["1.0", "2.00", "-0.0"],
    ["01069", "1069", "99999"],
    ["1234567890123456", "5", "6"],
    ["a", "b", "True"],
    ["a", "", None],
    ["1", "", None],
    ["", "", ""],
    [None, None, None],
    ["1", "NA", "3"],
    ["1", "x", "3"],
    ["a", "?", "1.0"],
    ["1,5", "2,5", "3"],
    ["1.234", "2.345", "999"],
    ["inf", "nan", "1"],
    ["1e5", "-", "7"],
    ["01069", "NA", "n.a."],
    ["NA", "NA", "?"],
    ["NA", "-", ""],
    ["b", "NaN", "-"],
    [" NA", "", "1.5"],
    ["2024-01-31", "2024-02-01", "12:30"],
    [" x ", "x", "\tx"],
    ["9007199254740993", "1", "2"],
]


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("repeat", [1, 200])
def test_columns_read_together_have_the_profiles_they_have_alone(decimal, repeat):
    columns = [pl.Series(cells * repeat, dtype=pl.String) for cells in COLUMNS]
    together = read_text_cells(columns, decimal=decimal)
    for column, cells in zip(columns, together, strict=True):
        alone = read_column_profile(column, decimal=decimal, texts=True)
        found = read_column_profile(column, decimal=decimal, texts=True, cells=cells)
        assert found.values.dtype == alone.values.dtype
        assert found.values.to_list() == pytest.approx(alone.values.to_list(), nan_ok=True)
        assert found.missing == alone.missing
        assert found.odd.tolist() == alone.odd.tolist()
        assert found.near.tolist() == alone.near.tolist()


def write_table(path, columns, *, missing="", every=5):
    """Write a CSV of many columns of several kinds, with missing cells in one column of a few."""
    rng = np.random.default_rng(1)
    data = {}
    for at in range(columns - 1):
        cells = [
            rng.normal(0, 5, 40).round(3).astype(str),
            rng.integers(0, 6, 40).astype(str),
            rng.choice(["a", "b", "c d"], 40),
            rng.choice(["1.234", "22.345", "7"], 40),
        ][at % 4].tolist()
        data[f"c{at}"] = [
            missing if at % every == 0 and row % 9 == 0 else cells[row] for row in range(40)
        ]
    data["sick"] = rng.choice(["no", "yes"], 40).tolist()
    pl.DataFrame(data).write_csv(path)


@pytest.mark.parametrize("missing", ["", "NA", "-"])
def test_a_draft_is_the_same_however_many_columns_are_read_together(tmp_path, monkeypatch, missing):
    write_table(tmp_path / "t.csv", 60, missing=missing)
    together = infer_schema(tmp_path / "t.csv")
    monkeypatch.setattr(schema_draft, "_CELLS_AT_ONCE", 300)
    assert infer_schema(tmp_path / "t.csv") == together
    monkeypatch.setattr(column_profile, "_read_plain_profile", lambda cells: None)
    assert infer_schema(tmp_path / "t.csv") == together


@pytest.mark.parametrize(("missing", "every", "most"), [("", 5, 4), ("NA", 1, 9)])
def test_few_calls_of_polars_for_each_column(tmp_path, monkeypatch, missing, every, most):
    calls = 0
    select = pl.DataFrame.select_seq  # A method of a series is an expression of a frame.

    def count(self, *args, **keywords):
        nonlocal calls
        calls += 1
        return select(self, *args, **keywords)

    monkeypatch.setattr(pl.DataFrame, "select_seq", count)
    write_table(tmp_path / "t.csv", 401, missing=missing, every=every)
    infer_schema(tmp_path / "t.csv")
    assert calls < most * 400  # It was 32 for each column, and 19 for one with marks.
