"""Blocks of parties' records: whose are taken, and raw columns as codes and clamped numbers."""

import numpy as np
import pytest
from blocks import block_of_columns

from parley.client.data.data_error import DataError
from parley.client.data.party_block import PartyBlock
from parley.client.data.query_party_block import get_field, read_raw_party_block
from parley.client.data.schema import Schema, SchemaError

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
stay = { kind = "numeric", range = [0, 30], missing = 3, outside = "refuse" }
sex = { kind = "categorical", categories = ["Female", "Male"] }
ward = { kind = "categorical", categories = ["a", "b"], other = true }
note = { kind = "ignore" }
sick = { kind = "label", positive = "yes", negative = "rest" }
"""
)
ROWS = {
    "age": np.array([-5.0, 50.0, 200.0]),
    "stay": np.array([1.0, np.nan, 30.0]),
    "sex": np.array(["Male", "", "Female"]),
    "ward": np.array(["c", "a", ""]),
    "sick": np.array(["yes", "no", ""]),
}


def test_numbers_are_clamped_and_empty_cells_go_where_the_schema_says():
    block = block_of_columns([ROWS, ROWS], SCHEMA)
    assert block.columns["age"].tolist()[:3] == [0.0, 50.0, 100.0]
    assert block.columns["stay"].tolist()[:3] == [1.0, 3.0, 30.0]
    assert block.columns["sex"].tolist()[:3] == [1, 2, 0]
    assert block.columns["ward"].tolist()[:3] == [2, 0, 2]
    assert block.columns["sick"].tolist()[:3] == [0, 1, 2]
    assert get_field(SCHEMA, "sick").texts == ("yes", "(other)", "(missing)")
    assert block.sizes.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("age", [1.0, np.nan, 2.0], "a finite number"),
        ("stay", [1.0, 31.0, 2.0], r"a number in \[0, 30\]"),
        ("sex", ["Male", "X", "Male"], "one of 'Female', 'Male'"),
    ],
)
def test_a_cell_that_the_schema_refuses_is_named_by_row_and_column(column, values, said):
    with pytest.raises(DataError, match=said) as found:
        block_of_columns([{**ROWS, column: np.array(values)}], SCHEMA)
    assert (found.value.row, found.value.column) == (2, column)


@pytest.mark.parametrize("name", ["note", "agee", ""])
def test_a_column_that_cannot_be_asked_about_is_refused_with_those_that_can(name):
    with pytest.raises(SchemaError, match="Expected a column of"):
        get_field(SCHEMA, name)


def test_a_csv_and_its_columns_in_memory_are_the_same_data(tmp_path):
    lines = ["age,stay,sex,ward,note,sick", "-5,1,Male,c,x,yes", "50,,,a,,no", "200,30,Female,,,"]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    read = read_raw_party_block([tmp_path / "a.csv"], SCHEMA)
    held = block_of_columns([ROWS], SCHEMA)
    for name, values in held.columns.items():
        assert np.array_equal(values, read.columns[name])
    assert read.contents == held.contents


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [([3, 3, 3, 3], [3, 0, 0]), ([1, 3, 3, 2], [2, 1]), ([4, 4, 2], [1])],
)
def test_parties_are_taken_with_their_own_records_in_the_order_given(sizes, chosen):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    count = int(offsets[-1])
    block = PartyBlock(
        features=np.arange(2.0 * count).reshape(count, 2), labels=np.arange(count), offsets=offsets
    )
    own = block.take(chosen)
    rows = np.concatenate([np.arange(offsets[at], offsets[at + 1]) for at in chosen])
    assert own.labels.tolist() == rows.tolist()
    assert own.features.tolist() == block.features[rows].tolist()
    assert own.sizes.tolist() == [sizes[at] for at in chosen]
    assert own.positions.tolist() == list(chosen)
    assert own.take([0]).positions.tolist() == chosen[:1]
    assert not np.shares_memory(own.features, block.features)


def test_sizes_are_kept_and_can_not_be_written_to():
    block = PartyBlock(features=np.zeros((5, 2)), labels=np.zeros(5), offsets=np.array([0, 2, 5]))
    assert block.sizes.tolist() == [2, 3]
    with pytest.raises(ValueError, match="read-only"):
        block.sizes[0] = 9
