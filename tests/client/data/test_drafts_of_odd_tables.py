"""Drafts of schemas for tables as they come: codes, dates as numbers, signs in numbers, headers."""

import datetime
import re

import numpy as np
import polars as pl
import pytest

from parley.client.data.column_types import canonicalize_text
from parley.client.data.data_error import DataError
from parley.client.data.memory_columns import build_memory_table
from parley.client.data.raw_table import RawTable
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema
from parley.client.data.schema_check import check_file
from parley.client.data.schema_inference.schema_draft import infer_schema

RECORDS = 600
RNG = np.random.default_rng(46)
SICK = RNG.integers(0, 2, RECORDS)
OUTCOME = ["ill" if sick else "well" for sick in SICK]


def written(tmp_path, cells, *, separator=",", suffix="csv"):
    """A file of x, the column `v` and an outcome."""
    table = {"x": RNG.integers(0, 100, RECORDS), "v": cells, "outcome": OUTCOME}
    path = tmp_path / f"d.{suffix}"
    if suffix == "parquet":
        pl.DataFrame(table).write_parquet(path)
    else:
        pl.DataFrame(table).write_csv(path, separator=separator, quote_style="non_numeric")
    return path


def reading(source, label=None, name="v"):
    """How the column is drafted, from a draft that a run reads."""
    draft = infer_schema(source, label=label)
    schema = Schema.from_toml(draft.text)
    if isinstance(source, str) or hasattr(source, "suffix"):
        assert check_file(source, schema).problems == ()
    kind = "softmax" if schema.label.classes else "logistic"
    records = read_records(source, schema, kind)
    assert len(records) == RECORDS
    return next(column for column in draft.columns if column.name == name), records


def codes(digits):
    """Two codes that differ in their last digit, by outcome."""
    first = 9 * 10 ** (digits - 1) + 7
    return [first + int(sick) for sick in SICK]


def test_codes_that_a_database_wrote_with_a_decimal_stay_apart(tmp_path):
    cells = [f"{code}.0" for code in codes(16)]
    column, _ = reading(written(tmp_path, cells))
    assert column.entry["kind"] == "categorical"
    assert sorted(map(canonicalize_text, column.entry["categories"])) == sorted(
        {str(code) for code in codes(16)}
    )


def test_labels_that_read_as_missing_are_named_when_too_few_are_left(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("x,y\n" + "".join(f"{row},{['NA', 'SA'][row % 2]}\n" for row in range(60)))
    with pytest.raises(DataError, match='got 1: "NA" means a missing label, unless the label'):
        infer_schema(path)
    # As the message says: a schema whose label lists it keeps it.
    schema = Schema.from_toml(
        '[columns]\nx = { kind = "numeric", range = [0, 60] }\n'
        'y = { kind = "label", positive = ["NA"], negative = ["SA"] }\n'
    )
    assert len(read_records(path, schema, "logistic")) == 60


def test_points_next_to_decimal_commas_are_asked_about(tmp_path):
    path = tmp_path / "d.csv"
    rows = "".join(f"1.{row:03d};{row},5;{'ab'[row % 2]}\n" for row in range(100, 200))
    path.write_text("v;x;outcome\n" + rows)
    column = next(each for each in infer_schema(path).columns if each.name == "v")
    assert column.entry["kind"] == "ignore"
    assert column.why.startswith("numbers with points in a file with decimal commas")


@pytest.mark.parametrize("digits", [16, 17, 18, 19, 20])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "frame", "missing", "Decimal", "series"])
def test_whole_numbers_of_16_digits_and_more_are_codes_wherever_they_come_from(
    digits, suffix, tmp_path
):
    if digits == 20 and suffix == "parquet":
        digits = 18
    cells = codes(digits)
    if suffix in {"csv", "parquet"}:
        dtype = pl.UInt64 if digits == 19 else pl.Int64
        series = pl.Series(cells, dtype=pl.Int128 if digits == 20 else dtype)
        source = written(tmp_path, series, suffix=suffix)
    else:
        objects = {
            "frame": np.array(cells, object),
            "missing": np.array([*cells[:-1], None], object),
            "Decimal": pl.Series(cells, dtype=pl.Decimal(scale=0)),
            "series": pl.Series([*cells[:-1], None], dtype=pl.Int128),
        }
        source = build_memory_table(
            {"x": np.arange(RECORDS) % 7, "v": objects[suffix], "outcome": OUTCOME}
        )
    found, records = reading(source)
    assert found.entry["kind"] == "categorical"
    assert found.entry["categories"] == sorted(map(str, set(cells)))
    # They carry the label: a double would have made one code of both.
    one_hot = records.features[:-1, 1] > 0
    np.testing.assert_array_equal(one_hot, records.labels[:-1] == records.labels[:-1][one_hot][0])
    other = [cell + 1 for cell in cells]
    if suffix in {"csv", "parquet"}:
        series = pl.Series(other, dtype=series.dtype)
        own = read_records(written(tmp_path, cells, suffix="csv"), *drafted(tmp_path, cells))
        next_one = read_records(written(tmp_path, other, suffix="csv"), *drafted(tmp_path, other))
        assert own.contents != next_one.contents


def drafted(tmp_path, cells):
    path = written(tmp_path, cells)
    return Schema.from_toml(infer_schema(path).text), "logistic"


def test_codes_are_labels_identifiers_and_categories_beside_shorter_ones(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("x,y\n" + "".join(f"{k % 9},{code}\n" for k, code in enumerate(codes(18))))
    assert len(reading(path, name="y")[0].entry["positive"]) == 1
    serial = [int(v) for v in np.random.default_rng(3).integers(10**18, 9 * 10**18, RECORDS)]
    for suffix in ("csv", "parquet"):
        found = reading(written(tmp_path, serial, suffix=suffix))[0]
        assert found.entry == {"kind": "ignore"}
        assert "identifier" in found.why
    mixed = ["73211009", "900000000000207008", "900000000000207009"] * (RECORDS // 3)
    assert reading(written(tmp_path, mixed))[0].entry["categories"] == sorted(set(mixed))
    odd = [*mixed[:-2], "error", "error"]  # 1 % of other cells make no number of a code
    assert reading(written(tmp_path, odd))[0].entry["kind"] == "categorical"
    measured = [f"{v:.17f}" for v in RNG.uniform(0, 1, RECORDS)]
    assert reading(written(tmp_path, measured))[0].entry["kind"] == "numeric"


@pytest.mark.parametrize(
    ("spellings", "wanted"),
    [
        (("TRUE", "True", "true", "False"), ["false", "true"]),
        (("1", "1.0", "1.00", "A"), ["1", "A"]),
        (("2.0", "2", "x", "True", "true"), ["2", "true", "x"]),
        ((" a", "a ", "b"), ["a", "b"]),
    ],
)
def test_values_that_a_schema_takes_as_one_are_listed_once(spellings, wanted, tmp_path):
    cells = [spellings[k % len(spellings)] for k in range(RECORDS)]
    found = reading(written(tmp_path, cells))[0]
    assert [canonicalize_text(value) for value in found.entry["categories"]] == wanted
    path = tmp_path / "label.csv"
    path.write_text("x,v\n" + "".join(f"{k % 7},{cell}\n" for k, cell in enumerate(cells)))
    entry = reading(path, label="v")[0].entry
    listed = entry.get("classes") or entry["positive"] + entry["negative"]
    assert sorted(map(canonicalize_text, listed)) == wanted


DAY = datetime.date(2015, 1, 1)
DAYS = [DAY + datetime.timedelta(days=int(d)) for d in RNG.integers(0, 3600, RECORDS)]


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        ([f"{day:%Y%m%d}" for day in DAYS], "YYYYMMDD"),
        ([f"{day:%Y%m%d}.0" for day in DAYS], "YYYYMMDD"),
        (["" if k % 3 else f"{day:%Y%m%d}" for k, day in enumerate(DAYS)], "YYYYMMDD"),
        (["0" if k % 5 == 1 else f"{day:%Y%m%d}" for k, day in enumerate(DAYS)], "YYYYMMDD"),
        ([f"{day:%Y%m}" for day in DAYS], "YYYYMM"),
        ([f"{day.day}{day:%m%Y}" for day in DAYS], "DDMMYYYY"),
        ([f"{day:%Y%m%d}235959" for day in DAYS], "YYYYMMDDhhmmss"),
        ([1_500_000_000 + 7919 * k for k in range(RECORDS)], "seconds since 1970"),
        ([1_500_000_000_000 + 7919 * k for k in range(RECORDS)], "milliseconds since 1970"),
    ],
)
def test_dates_as_whole_numbers_are_ignored_as_dates(cells, form, tmp_path):
    found = reading(written(tmp_path, cells))[0]
    assert found.entry == {"kind": "ignore"}
    assert "dates or times" in found.why
    assert found.why.endswith(form)


@pytest.mark.parametrize(
    "cells",
    [
        RNG.integers(1930, 2020, RECORDS),
        RNG.integers(100, 4000, RECORDS) * 50,
        RNG.integers(190_000, 210_000, RECORDS),
        RNG.integers(10_000_000, 99_999_999, RECORDS // 2).repeat(2),
    ],
    ids=["years", "pay", "counts", "eight digits"],
)
def test_other_whole_numbers_stay_numbers(cells, tmp_path):
    assert reading(written(tmp_path, cells))[0].entry["kind"] == "numeric"


def test_a_serial_number_is_ignored_whatever_its_name_and_in_whichever_order(tmp_path):
    shuffled = np.random.default_rng(5).permutation(RECORDS) + 1
    found = reading(written(tmp_path, shuffled))[0]
    assert found.entry == {"kind": "ignore"}
    assert "a different whole number in every record" in found.why
    files = []
    for name in ("north", "south"):  # each counts from 1
        files.append(tmp_path / f"{name}.csv")
        rows = [f"{k},{k % 9},{k % 2}" for k in shuffled[shuffled <= 200]]
        files[-1].write_text("\n".join(["v,x,y", *rows]))
    (serial,) = [column for column in infer_schema(*files).columns if column.name == "v"]
    assert serial.entry == {"kind": "ignore"}


def test_few_whole_numbers_get_a_remark_that_works_as_typed(tmp_path):
    path = written(tmp_path, RNG.integers(1, 5, RECORDS))
    draft = infer_schema(path)
    (remark,) = reading(path)[0].remarks
    assert "4 different whole numbers: if they are codes" in remark
    typed = remark.partition("write ")[2].partition(" for this")[0]
    lines = draft.text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("v = "))
    lines[at] = f"v = {{ {typed} }}"
    schema = Schema.from_toml("\n".join(lines))
    assert schema.columns["v"].texts == ["1", "2", "3", "4"]
    assert check_file(path, schema).problems == ()
    assert reading(written(tmp_path, RNG.integers(0, 2, RECORDS)))[0].remarks == ()


@pytest.mark.parametrize("mark", [",", "\u00a0", "\u202f", "'", "\u2019", " "])
def test_thousands_marks_are_named_whichever_they_are(mark, tmp_path):
    cells = [f"{v:,}".replace(",", mark) for v in RNG.integers(200, 99_999, RECORDS)]
    found = reading(written(tmp_path, cells))[0]
    assert found.entry == {"kind": "ignore"}
    assert found.why.startswith("numbers with thousands marks")


@pytest.mark.parametrize(
    ("form", "named"),
    [
        ("{} mg", "units"),
        ("\u2212{}.5", "U+2212"),
        ("{} %", "percent signs"),
        ("€ {}.20", "currency signs"),
        ("<{}", "less or more"),
        ("({}.0)", "brackets"),
        ("'{}'", "quotation marks"),
    ],
)
def test_signs_in_numbers_are_named(form, named, tmp_path):
    found = reading(written(tmp_path, [form.format(k % 300) for k in range(RECORDS)]))[0]
    assert found.entry == {"kind": "ignore"}
    assert named in found.why
    few = reading(written(tmp_path, [form.format(k % 20) for k in range(RECORDS)]))[0]
    assert found.why in few.remarks[0]  # as categories, with the same hint


@pytest.mark.parametrize(
    ("separator", "cells", "warned"),
    [
        (";", [["630", "3.381", "999", "1.890"][k % 4] for k in range(RECORDS)], True),
        (";", [["630", "3,381", "999", "1,890"][k % 4] for k in range(RECORDS)], True),
        (",", [["630", "3.381", "999", "1.890"][k % 4] for k in range(RECORDS)], True),
        (";", [["630", "3.381", "999", "1.8"][k % 4] for k in range(RECORDS)], False),
        (";", [f"0.{k % 900 + 100}" for k in range(RECORDS)], False),
        (",", [f"{k % 7 + 1}.{k % 900 + 100}" for k in range(RECORDS)], False),
    ],
)
def test_marks_before_three_digits_are_asked_about(separator, cells, warned, tmp_path):
    found = reading(written(tmp_path, cells, separator=separator))[0]
    assert found.entry["kind"] == "numeric"
    assert any("thousands separator" in remark for remark in found.remarks) == warned


def test_what_a_spreadsheet_shows_for_no_value_is_missing(tmp_path):
    for error in ("#DIV/0!", "#VALUE!", "#REF!", "#NUM!"):
        cells = [error if k % 20 == 0 else f"{k % 13}.5" for k in range(RECORDS)]
        found = reading(written(tmp_path, cells))[0]
        assert found.entry["kind"] == "numeric"
        assert f"{error} 30" in found.remarks[0]


def test_a_category_that_is_spelt_na_can_be_kept_as_the_remark_says(tmp_path):
    path = written(tmp_path, [["NA", "BW", "AO"][k % 3] for k in range(RECORDS)])
    found = reading(path)[0]
    assert 'to keep "NA" as one of the categories, write it into this column' in found.remarks[0]
    kept = infer_schema(path).text.replace('["AO"', '["NA", "AO"')
    block = read_records(path, Schema.from_toml(kept), "logistic")
    named = list(block.feature_names).index("v=NA")
    assert (block.features[:, named] > 0).sum() == RECORDS // 3


ROWS = "".join(f"{k},{k % 50},{OUTCOME[k]}\n" for k in range(1, 60))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,outcome\n" + ROWS, "one name fewer than the rows have cells; are the first cells row"),
        ("outcome\n" + ROWS, "2 names fewer than the rows have cells"),
        ("a,x,more,outcome\n" + ROWS, "one name more than the rows have cells"),
        ("a,x,outcome\n" + ROWS.replace("\n", ",\n"), "an empty cell at every line's end"),
        ("Ward, export\na,x,outcome\n" + ROWS, "delete the lines above the names"),
        ("sep=,\na,x,outcome\n" + ROWS, r"sep= \(delete the lines above the names\)"),
        ("\ufeffsep=;\na;x;outcome\n" + ROWS.replace(",", ";"), r"sep= \(delete"),
        ("a,x,outcome\n" + ROWS + "a,x,outcome\n" + ROWS, "same names again in line 61"),
    ],
)
def test_a_header_that_does_not_fit_is_told_by_what_it_is(text, said, tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        infer_schema(path)


def test_a_run_and_a_check_know_of_row_names_too(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("x,outcome\n" + ROWS)
    schema = Schema.from_toml("""
    [columns]
    x = { kind = "numeric", range = [0, 50] }
    outcome = { kind = "label", positive = "ill", negative = "well" }
    """)
    with pytest.raises(DataError, match="one name fewer than the rows have cells"):
        read_records(path, schema, "logistic")
    (problem,) = check_file(path, schema).problems
    assert "one name fewer" in problem


def test_a_party_whose_column_is_text_is_named_with_the_column(tmp_path):
    files = []
    for name, form in (("north", "{}"), ("south", "{}"), ("west", "{} mg")):
        files.append(tmp_path / f"{name}.csv")
        rows = [f"{form.format(k * 7 % 90 + 1)},{k % 9},{k % 2}" for k in range(120)]
        files[-1].write_text("\n".join(["dose,x,y", *rows]))
    dose = infer_schema(*files).columns[0]
    assert dose.entry["kind"] == "ignore"
    assert f"numbers in {files[0]}, {files[1]}, but text in {files[2]} ('1 mg'" in dose.remarks[-1]
    for file, cells in zip(files, (range(120), range(120), map(str, range(120))), strict=True):
        table = {"dose": list(cells), "x": [1, 2] * 60, "y": [0, 1] * 60}
        pl.DataFrame(table).write_parquet(file.with_suffix(".parquet"))
    parquet = [file.with_suffix(".parquet") for file in files]
    with pytest.raises(DataError, match=r"west\.parquet, column 'dose': Expected one type in all"):
        infer_schema(*parquet)
    assert infer_schema(*parquet[:2]).columns[0].name == "dose"


def test_a_check_looks_at_each_column_by_itself(tmp_path, monkeypatch):
    """What is copied grows with the columns, not with their square."""
    copied = []
    take = RawTable.take

    def counted(self, rows):
        copied.append(self.frame.width * len(rows))
        return take(self, rows)

    monkeypatch.setattr(RawTable, "take", counted)
    cells = {}
    for width in (20, 80):
        names = [f"c{k}" for k in range(width)]
        table = {name: RNG.uniform(0, 1.1, 30) for name in names} | {"y": SICK[:30]}
        path = tmp_path / f"{width}.csv"
        pl.DataFrame(table).write_csv(path)
        columns = "\n".join(f'{n} = {{ kind = "numeric", range = [0, 1] }}' for n in names)
        schema = f'[columns]\n{columns}\ny = {{ kind = "label", positive = 1, negative = 0 }}'
        copied.clear()
        found = check_file(path, Schema.from_toml(schema))
        assert found.problems == ()
        assert found.remarks
        cells[width] = sum(copied)
    assert cells[80] < 5 * cells[20]


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
@pytest.mark.parametrize("kind", ["text", "dates"])
def test_a_check_names_a_column_of_another_type(kind, suffix, tmp_path):
    cells = ["1", "2"] * 30
    if kind == "dates":
        cells = [datetime.date(2020, 1, 1 + day % 28) for day in range(60)]
    path = tmp_path / f"d.{suffix}"
    if suffix == "parquet":
        pl.DataFrame({"v": cells, "y": [0, 1] * 30}).write_parquet(path)
    else:
        np.savez(path, v=np.array(cells, dtype=None if kind == "text" else "M8[D]"), y=[0, 1] * 30)
    schema = Schema.from_toml(
        '[columns]\nv = { kind = "numeric", range = [0, 9] }\n'
        "y = { kind = 'label', positive = [1], negative = [0] }\n"
    )
    (problem,) = check_file(path, schema).problems
    assert re.search("Expected (a column of numbers, got type|numbers or text, got dtype)", problem)


def test_the_line_that_leaves_a_column_out_can_be_typed(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("v,,a.b,y\n" + "1,2,3,0\n2,3,4,1\n" * 10)
    text = (
        '[columns]\nv = { kind = "numeric", range = [0, 9] }\n'
        "y = { kind = 'label', positive = [1], negative = [0] }\n"
    )
    lines = [
        re.search(": (.* = .*) leaves it out", problem)[1]
        for problem in check_file(path, Schema.from_toml(text)).problems
    ]
    assert check_file(path, Schema.from_toml(text + "\n".join(lines))).problems == ()
