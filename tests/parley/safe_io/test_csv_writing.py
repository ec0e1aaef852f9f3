"""No text of a CSV is a formula, however it was written, and no number is changed."""

import csv
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.safe_io.csv_writing import escape_formulas, format_csv
from parley.safe_io.printable_text import to_one_line

SIGNS = "=+-@\t\r\n\uff1d"


@given(st.lists(st.text(alphabet=SIGNS + "1e.a \"',"), min_size=1, max_size=8))
def test_both_ways_to_write_guard_the_same_texts(texts):
    frame = escape_formulas(pl.DataFrame({"-x": texts, "y": [-1.5] * len(texts)}))
    text = format_csv(["-x", "y"], ([x, -1.5] for x in texts), note="of a server\n=1+1")
    note, *read = csv.reader(io.StringIO(text))
    assert note == ["# of a server?=1+1"]
    assert frame.columns == read[0] == ["'-x", "y"]
    assert [[to_one_line(x), str(y)] for x, y in frame.iter_rows()] == read[1:]
    for text, cell in zip(texts, frame["'-x"], strict=True):
        assert cell in (text, f"'{text}")
        assert cell[:1] not in SIGNS or not cell.strip("0123456789.,+-eE")


@pytest.mark.parametrize("number", ["-1", "+4912", "-1.5e-3", "1,5", "-", ""])
def test_a_text_that_is_a_number_is_as_it_was(number):
    assert escape_formulas(pl.DataFrame({"x": [number]})).item() == number
