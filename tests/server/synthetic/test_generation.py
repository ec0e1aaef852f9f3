"""Rows in pieces: a table is the same file whatever the pieces, in every encoding."""

import numpy as np
import polars as pl
import pytest

from parley.client.data.schema import Schema
from parley.server.synthetic.synthetic_rows import decode_tables, split_rows, take_rows, write_table

SCHEMA = """
[file]
encoding = "ENCODING"
decimal = ","
separator = ";"
[columns]
age = { kind = "numeric", range = [0, 100], bins = 5, step = 1 }
share = { kind = "numeric", range = [0, 1], bins = 4 }
ward = { kind = "categorical", categories = ["Ä", "B"], other = true }
id = { kind = "ignore" }
sick = { kind = "label", positive = "ja", negative = "nein" }
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_a_table_in_pieces_has_one_header_and_one_mark_of_its_encoding(tmp_path, encoding):
    schema = Schema.from_toml(SCHEMA.replace("ENCODING", encoding))
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 50) for size in (5, 4, 3, 2)], axis=1)
    parts = np.split(codes, [7, 20])
    write_table(decode_tables(parts, schema, seed=1), schema, tmp_path / "rows.csv")
    text = (tmp_path / "rows.csv").read_bytes().decode(encoding)
    lines = text.splitlines()
    assert lines[0] == "age;share;ward;id;sick"
    assert len(lines) == 51
    assert "\ufeff" not in text
    assert [line.split(";")[2] for line in lines[1:]] == [
        ("Ä", "B", "(other)")[code] for code in codes[:, 2]
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_table_that_fails_on_the_way_leaves_nothing(tmp_path):
    schema = Schema.from_toml(SCHEMA.replace("ENCODING", "latin-1"))

    def broken():
        yield pl.DataFrame({"age": [1]})
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_table(broken(), schema, tmp_path / "rows.csv")
    assert not list(tmp_path.iterdir())


def test_pieces_are_drawn_when_they_are_wanted():
    drawn = []

    def codes():
        for count in split_rows(10**12, 4):
            drawn.append(count)
            yield np.zeros((count, 2), np.int64)

    assert take_rows(codes(), 6).shape == (6, 2)
    assert drawn == [4, 4]
