"""Columns may have any name: those that a library keeps for itself, patterns, markup, nothing."""

import contextlib
import csv

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.data.data_error import DataError
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, SchemaError
from parley.client.data.schema_check import check_file
from parley.client.data.schema_inference.schema_draft import infer_schema

HOSTILE = (
    *("count", "len", "index", "literal", "value", "prediction", "row_nr", "field_0", "COUNT"),
    *("*", "^.*$", "^count$", "^[", "", "a.b", 'a"b', "a'b", "#x", "=1", "[x]", "{x}", "%s"),
    *("columns", "file", "kind", "None", "nan", "NA", "1e5", "__class__", "𝒳", "e\u0301"),
    *("\u202eabc", "\x1b[31m", "new\nline", "tab\tname", "back\\slash", "[red]x[/red]", "v" * 200),
)
ROWS = 60


def cells(seed):
    """Whole numbers, two of them missing; decimals; labels."""
    rng = np.random.default_rng(seed)
    own = [None, None, *(int(value) for value in rng.integers(0, 9, ROWS - 2))]
    return own, rng.normal(size=ROWS).round(2).tolist(), rng.integers(0, 2, ROWS).tolist()


def written(folder, names, kind):
    """A file of three columns of these names, and the same columns in memory."""
    columns = dict(zip(names, cells(3), strict=True))
    path = folder / f"f.{kind}"
    if kind == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(columns)
            texts = [["NA" if cell is None else cell for cell in row] for row in columns.values()]
            rows.writerows(zip(*texts, strict=True))
    else:
        pl.DataFrame(columns).write_parquet(path)
    return path


def is_read(path, label):
    """From the file to a schema, through the check, to records."""
    schema = Schema.from_toml(infer_schema(path, label=label).text)
    assert not check_file(path, schema).problems
    return len(read_records(path, schema, "logistic"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_column_of_any_name_is_inferred_checked_and_read(name, kind, tmp_path):
    assert is_read(written(tmp_path, (name, "zz", "sick"), kind), "sick") == ROWS
    label = written(tmp_path, ("aa", "zz", name), kind)
    assert is_read(label, name) == ROWS


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(
        st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]))),
        min_size=3,
        max_size=3,
        unique=True,
    ),
    kind=st.sampled_from(["csv", "parquet"]),
)
def test_names_are_read_or_refused_as_wrong_input(names, kind, tmp_path_factory):
    path = written(tmp_path_factory.mktemp("names"), names, kind)
    with contextlib.suppress(DataError, SchemaError):  # any other error is ours
        assert is_read(path, names[-1].strip() if kind == "csv" else names[-1]) == ROWS
