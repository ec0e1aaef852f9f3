"""Columns as codes and back: every kind of column reads back as the code that it was drawn from."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.data.class_indices import to_classes
from parley.client.data.record_discretization import build_coded_columns
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, SchemaError
from parley.client.features.bins_and_splines import RecordCodes
from parley.server.synthetic.synthetic_rows import decode_tables, write_table

SCHEMA = """
[file]
separator = ";"
decimal = ","
[columns]
age = { kind = "numeric", range = [17, 90], step = 1 }
id = { kind = "ignore" }
gain = { kind = "numeric", range = [0, 99999], transform = "log1p", step = 1 }
share = { kind = "numeric", range = [-1, 3.5], bins = 7 }
half = { kind = "numeric", range = [0.5, 4], step = 0.5, bins = 100 }
sick = { kind = "label", positive = ["yes", "y"], negative = "rest" }
ward = { kind = "categorical", categories = ["A", 7, true], other = true }
"""


def read_back(frame, schema, path):
    write_table([frame], schema, path)
    records = read_records(path, schema.unscaled, "logistic")
    rows = RecordCodes().bind(schema).compute(records.features)
    sizes = [column.size for column in build_coded_columns(schema)]
    ends = np.cumsum(sizes[:-1])
    blocks = np.split(rows, ends[:-1], axis=1)
    assert all((block.sum(axis=1) == 1).all() for block in blocks)
    labels, _ = to_classes(records.labels, schema.classes)
    return np.stack([*(block.argmax(axis=1) for block in blocks), labels], axis=1)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rows_read_back_as_the_codes_that_they_were_drawn_from(seed, tmp_path_factory):
    schema = Schema.from_toml(SCHEMA)
    columns = build_coded_columns(schema)
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, column.size, 300) for column in columns], axis=1)
    (frame,) = decode_tables([codes], schema, seed=seed)
    assert frame.columns == list(schema.columns)
    found = read_back(frame, schema, tmp_path_factory.mktemp("rows") / "rows.csv")
    np.testing.assert_array_equal(found, codes)


def test_parts_are_equal_in_the_transformed_scale_and_end_at_whole_steps():
    age, gain, share, half, ward, sick = build_coded_columns(Schema.from_toml(SCHEMA))
    assert age.edges[:3] == (22, 26, 31)
    assert (age.size, len(age.edges)) == (16, 15)
    assert gain.edges[:3] == (1, 3, 8)
    assert gain.size == 16
    assert np.allclose(np.diff(share.edges), 4.5 / 7)
    assert half.edges == (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)  # bins without a value are merged
    assert ward.texts == ("A", "7", "true", "(other)")
    assert sick.texts == ("(rest)", "yes")


def test_numbers_are_uniform_within_their_part_and_whole_where_the_schema_says_so():
    age, _, share, half, *_ = build_coded_columns(Schema.from_toml(SCHEMA))
    rng = np.random.default_rng(0)
    drawn = age.sample_values(np.zeros(5000, np.int64), rng)
    assert drawn.dtype == np.int64
    assert np.allclose(np.bincount(drawn - 17) / 5000, 1 / 5, atol=0.02)
    assert set(half.sample_values(np.full(50, 7), rng)) == {4.0}
    inside = share.sample_values(np.full(5000, 3), rng)
    assert share.edges[2] <= inside.min() < inside.max() < share.edges[3]
    assert abs(inside.mean() - (share.edges[2] + share.edges[3]) / 2) < 0.01


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ('a = { kind = "array", range = [0, 1], shape = [2, 2] }', "the array 'a'"),
        ('a = { kind = "numeric", range = [0, 1], step = 1, bins = 1 }', "greater than or equal"),
        ('a = { kind = "numeric", range = [0, 1], step = 0 }', "greater than 0"),
        ('a = { kind = "numeric", range = [0, 1], step = 2 }', "got 2"),
    ],
)
def test_columns_that_cannot_be_counted_are_refused_with_their_name(column, said):
    text = f'[columns]\n{column}\ny = {{ kind = "label", positive = 1, negative = 0 }}\n'
    with pytest.raises(SchemaError, match=said):
        build_coded_columns(Schema.from_toml(text))


def test_a_label_that_is_a_number_is_refused_with_the_remedy():
    text = '[columns]\na = { kind = "numeric", range = [0, 1] }\n'
    text += 'y = { kind = "label", range = [0, 9] }\n'
    with pytest.raises(SchemaError, match="Make it a column of kind numeric"):
        build_coded_columns(Schema.from_toml(text))


def test_the_new_keys_change_no_digest_of_schemas_that_lack_them():
    plain = Schema.from_toml(SCHEMA.replace(", bins = 7", "").replace(", bins = 100", ""))
    assert plain.digest != Schema.from_toml(SCHEMA).digest
    text = '[columns]\nage = { kind = "numeric", range = [0, 100] }\n'
    text += 'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    # Of version 0.1.0, before the keys were there.
    before = "65b99966734b6a97"
    assert Schema.from_toml(text).digest[:16] == before


def test_an_encoding_that_cannot_hold_a_text_leaves_no_file(tmp_path):
    schema = Schema.from_toml(SCHEMA.replace("[file]", '[file]\nencoding = "latin-1"'))
    with pytest.raises(UnicodeEncodeError):
        write_table([pl.DataFrame({"age": ["日"]})], schema, tmp_path / "rows.csv")
    assert list(tmp_path.iterdir()) == []
