"""Digests of cells are those of the first version, which read each cell as a text."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from parley.client.data.column_types import LONG_CODE, TRUTH_VALUES, WHOLE_NUMBER
from parley.client.data.multiset_digest import digest_columns, hash_texts, to_bits
from parley.client.data.raw_table import RawTable
from parley.client.data.table_digest import encode_cells
from parley.client.data.text_numbers import normalize_decimal_points

ADVERSARIAL = [
    *("1e22", "-0.0", "0", "0.0", "-0", "0.1", "0.30000000000000004", "1e400", "-1e400", "5e-324"),
    *("nan", "NaN", "-nan", "inf", "-Infinity", "infinity", "1_000", "1,5", "1.5", "1.", ".5"),
    *("9007199254740993", "9007199254740992", "9007199254740993.0", "123456789012345"),
    *("1234567890123456", "0000000000000005", "000000000000005", "+1234567890123456", "1e15"),
    *("100000000000000000000.5", "1000000000000000.0", "-1234567890123456.00", "1e16", "0x10"),
    *("2024-01-31", "20240131", "12:30", "a b", " a b ", " 1", "1 ", "\t1", "1\u00a0", "٣", "１２"),
    *("True", "TRUE", "true", "False", "", " ", "?", "NA", "-99", "-99.0", " -99 ", "null", "é"),
    *("+1", "--1", "1e5", "1E5", "1e+5", "1.50", "01.5", "1.0", "1.000", "-1.0", "+1.0", "1.0e0"),
    *(str(0.1 + 0.2), repr(1 / 3), "3.3333333333333335", "12345678901234.5", "50.018452"),
]


TOTAL = 0x397A79C2A70959C9A01FF5EAB0E91D57B60145F9F2F833634BED3706B878CDAF
PREFIXES = [
    [12782080887957044530, 16172774885676763414],
    [3255801557869131895, 10508328993581930332],
    [13460661748702278348, 10525262568439043867],
    [2359410106644903275, 1494362245255757944],
]


def encode_as_before(table, name):
    """Encode every cell through its canonical text."""
    texts = table.get_column(name).str.strip_chars()
    empty = texts.is_in(sorted({"", *table.null_values}))
    texts = texts.set(empty, None) if empty.any() else texts
    texts = texts.str.strip_chars().str.replace(WHOLE_NUMBER, "$1").replace(TRUTH_VALUES)
    texts = texts.fill_null("")
    parsed = normalize_decimal_points(texts, table.decimal).cast(pl.Float64, strict=False)
    bits = to_bits(parsed.fill_null(np.nan).to_numpy())
    others = (parsed.is_null() | parsed.is_nan() | texts.str.contains(LONG_CODE)).fill_null(True)
    bits[others.to_numpy()] = hash_texts(texts.filter(others).to_list())
    return bits


def make_table(cells):
    """Return the table of a CSV with one column."""
    return RawTable(
        path="t.csv", frame=pl.DataFrame({"x": pl.Series(cells, dtype=pl.String)}), arrays={},
        typed=False,
    )  # fmt: skip


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("null_values", [(), ("-99", "?", "1.50", "20240131")])
def test_cells_of_text_have_the_digests_that_ledgers_hold(decimal, null_values):
    rng = np.random.default_rng(1)
    numbers = [f"{value:.{int(rng.integers(0, 18))}f}" for value in rng.normal(0, 1e3, 300)]
    columns = (
        [*ADVERSARIAL, None],
        [None] * 3,
        numbers,
        [*numbers, *ADVERSARIAL, None],
        3 * ADVERSARIAL,
        *([cell] for cell in ADVERSARIAL),
    )
    for cells in columns:
        table = replace(make_table(cells), decimal=decimal, null_values=null_values)
        expected = encode_as_before(table, "x")
        assert encode_cells(table, "x").tolist() == expected.tolist(), cells[:3]


def test_typed_cells_have_the_digests_of_their_texts():
    typed = {
        "truth": pl.Series([True, False, None]),
        "codes": pl.Series([2**60, 5, None]),
        "category": pl.Series(["1.0", "b", None], dtype=pl.Categorical),
    }
    texts = {
        "truth": ["true", "false", ""],
        "codes": [str(2**60), "5", ""],
        "category": ["1", "b", ""],
    }
    for name, series in typed.items():
        table = RawTable(path="t", frame=series.alias("x").to_frame(), arrays={})
        assert encode_cells(table, "x").tolist() == (
            encode_as_before(make_table(texts[name]), "x").tolist()
        )


def test_the_total_of_rows_is_the_one_that_ledgers_hold():
    # Computed by the first version, which added Python integers row by row.
    cells = [np.arange(10_000, dtype=np.uint64), np.arange(10_000, dtype=np.uint64)[::-1].copy()]
    found = digest_columns(cells, 10_000, description="two")
    assert found.total == TOTAL
    assert found.digests[[0, 4095, 4096, 9999], :2].tolist() == PREFIXES
