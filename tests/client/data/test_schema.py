"""The schema: what is refused and how, the public maps, and that nothing else is needed."""

import gzip
import importlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parley.cli import app
from parley.client.data.column_types import (
    MISSING_TEXTS,
    ArrayColumn,
    NumericColumn,
    canonicalize_text,
)
from parley.client.data.data_error import DataError
from parley.client.data.record_reading import read_records
from parley.client.data.schema import COLUMN_KINDS, FileFormat, Schema, SchemaError, load_schema
from parley.client.data.schema_check import check_file

LABEL = 'y = { kind = "label", positive = 1, negative = 0 }\n'
AGE = 'age = { kind = "numeric", range = [0, 100] }\n'


def schema(columns, head=""):
    return Schema.from_toml(f"{head}\n[columns]\n{columns}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns", "Expected TOML"),
        ("", "Expected the key columns, got none"),
        ("scalling = 'unit'\n[columns]\n" + AGE + LABEL, "nearest is 'scaling', got scalling"),
        ("[file]\nnull-value = []\n[columns]\n" + AGE + LABEL, "nearest is 'null-values'"),
        ("[file]\ndecimal = ','\n[columns]\n" + AGE + LABEL, "decimal and separator to differ"),
        ("[file]\nmax-gib = 0\n[columns]\n" + AGE + LABEL, "file.max-gib: Expected greater than 0"),
        ("[file]\nencoding = 'utf8'\n[columns]\n" + AGE + LABEL, "file.encoding: Expected 'utf-8'"),
        ('[columns]\ny = { kind = "label", range = [0, 1], missing = 0 }', "'refuse' or 'drop'"),
        ("[file]\nseparator = ', '\n[columns]\n" + AGE + LABEL, "file.separator"),
        ("[columns]\n" + AGE + LABEL + LABEL.replace("y", "z", 1), r"got \['y', 'z'\]"),
        ("[columns]\n" + LABEL, "at least one column of kind numeric"),
        ('[columns]\na = { kind = "numerical", range = [0, 1] }', "nearest is 'numeric'"),
        ('[columns]\na = { kind = "numeric", rnage = [0, 1] }', "nearest is 'range'"),
        ('[columns]\na = { kind = "numeric" }', "Expected the key columns.a.range, got none"),
        ('[columns]\na = { kind = "numeric", range = [1, 1] }', r"low < high, got \[1, 1\]"),
        ('[columns]\na = { kind = "numeric", range = [0, "9"] }', "columns.a.range.1"),
        ('[columns]\na = { kind = "numeric", range = [0, inf] }', "finite number"),
        ('[columns]\na = { kind = "numeric", range = [0, 1], centre = 2 }', "centre within"),
        ('[columns]\na = { kind = "numeric", range = [-1, 1], transform = "log1p" }', "above -1"),
        ('[columns]\na = { kind = "numeric", range = [-1e308, 1e308] }', "within .-1e.300"),
        (
            '[columns]\na = { kind = "numeric", transform = "log1p", '
            "range = [1e20, 1.0000000000000002e20] }",
            "differ after log1p",
        ),
        ('[columns]\na = { kind = "categorical", categories = [] }', "columns.a.categories"),
        ('[columns]\na = { kind = "categorical", categories = [1, "1.0"] }', "got '1' twice"),
        ('[columns]\na = { kind = "categorical", categories = ["x"], missing = "z" }', "listed"),
        ('[columns]\na = { kind = "array", shape = [0], range = [0, 1] }', "columns.a.shape.0"),
        ('[columns]\ny = { kind = "label" }', "Expected what the label means"),
        ('[columns]\ny = { kind = "label", positive = 1 }', "negative is missing"),
        ('[columns]\ny = { kind = "label", positive = "rest", negative = "rest" }', "for both"),
        ('[columns]\ny = { kind = "label", positive = [1], negative = [0, 1] }', "got '1' twice"),
        ('[columns]\ny = { kind = "label", positive = [], negative = [1] }', "at least one value"),
        ('[columns]\ny = { kind = "label", classes = [1] }', "at least 2 items"),
    ],
)
def test_a_faulty_schema_is_refused_with_place_and_expectation(text, message):
    with pytest.raises(SchemaError, match=message):
        Schema.from_toml(text)


def test_a_missing_schema_file_is_named(tmp_path):
    with pytest.raises(SchemaError, match=r"nowhere\.toml: Expected a schema file"):
        load_schema(tmp_path / "nowhere.toml")


def test_numbers_map_range_and_centre_as_written():
    column = NumericColumn(kind="numeric", range=(0, 100), centre=20)
    assert column.encode(np.array([-5.0, 0, 20, 60, 100, 1e9])).tolist() == [
        -0.25, -0.25, 0, 0.5, 1, 1,
    ]  # fmt: skip
    log = NumericColumn(kind="numeric", range=(0, 999), centre=0, transform="log1p")
    np.testing.assert_allclose(log.encode(np.array([0.0, 9, 99, 999])), [0, 1 / 3, 2 / 3, 1])


def test_the_default_centre_is_the_middle_of_the_range():
    column = NumericColumn(kind="numeric", range=(-2, 6))
    assert column.encode(np.array([-2.0, 2, 6])).tolist() == [-1, 0, 1]


@given(
    st.sampled_from(["record", "schema", "unit"]),
    arrays(np.float64, (5, 7), elements=st.floats(-1, 1)),
)
@example("unit", np.full((5, 7), 1e-160))
def test_rows_end_within_the_unit_ball_whatever_the_scaling(scaling, rows):
    columns = "".join(f'a{k} = {{ kind = "numeric", range = [0, 1] }}\n' for k in range(7))
    scaled = schema(columns + LABEL, f'scaling = "{scaling}"').scale_rows(rows.copy())
    norms = np.linalg.norm(scaled, axis=1)
    assert (norms <= 1).all()
    if scaling == "unit":
        before = np.linalg.norm(rows, axis=1)
        np.testing.assert_allclose(norms[before > 1e-150], 1, rtol=1e-11)


def test_record_scaling_leaves_short_rows_alone_and_is_row_by_row():
    s = schema(AGE + AGE.replace("age", "b") + LABEL)
    rows = np.array([[0.3, 0.4], [1.0, 1.0]])
    both = s.scale_rows(rows.copy())
    assert both[0].tolist() == [0.3, 0.4]
    np.testing.assert_array_equal(both[1:], s.scale_rows(rows[1:].copy()))


def test_rows_of_very_many_columns_are_scaled_alike_alone_and_among_others():
    s = schema('a = { kind = "array", shape = [9000], range = [-1, 1] }\n' + LABEL)
    rows = np.random.default_rng(0).uniform(-1, 1, (40, 9000))
    alone = [s.scale_rows(row[None].copy()) for row in rows]
    np.testing.assert_array_equal(s.scale_rows(rows.copy()), np.concatenate(alone))


def test_the_public_row_scale_counts_columns_and_array_entries():
    s = schema(
        AGE + 'c = { kind = "categorical", categories = ["a", "b"], other = true }\n'
        'i = { kind = "array", shape = [2, 3], range = [0, 1] }\n' + LABEL
    )
    assert s.row_scale == pytest.approx(1 / np.sqrt(1 + 1 + 6))
    assert s.dimension == 1 + 3 + 6 == len(s.feature_names)
    assert s.feature_names[1:5] == ("c=a", "c=b", "c=(other)", "i[0,0]")


def test_to_toml_is_read_back_as_the_same_schema():
    s = schema(
        AGE + '"odd \\"name\\"" = { kind = "categorical", categories = ["a\\tb", 3, true, 1.5] }\n'
        'n = { kind = "numeric", range = [-1.5, 1e20], missing = 0, outside = "refuse" }\n'
        'z = { kind = "ignore" }\n'
        'y = { kind = "label", positive = "rest", negative = ["no"], classes = ["no", "yes"] }\n',
        'scaling = "unit"\n[file]\nheader = false\nseparator = "\\t"\nnull-values = ["?"]',
    )
    assert Schema.from_toml(s.to_toml()) == s


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"), (1.0, "1"), ("1.00", "1"), ("-2.0", "-2"), (1.5, "1.5"), (True, "true"),
        (" a ", "a"),
    ],
)  # fmt: skip
def test_values_are_compared_as_text(value, text):
    assert canonicalize_text(value) == text


def test_arrays_encode_like_numbers():
    column = ArrayColumn(kind="array", shape=(2,), range=(0, 16), centre=0)
    assert column.encode(np.array([[0.0, 8], [16, 32]])).tolist() == [[0, 0.5], [1, 1]]


def test_every_key_of_a_schema_and_every_missing_text_is_on_a_page(monkeypatch):
    page = (Path(__file__).resolve().parents[3] / "docs" / "schema.md").read_text(encoding="utf-8")
    for kind in COLUMN_KINDS:
        assert f"| `{kind}` |" in page
    keys = {key for part in (FileFormat, *COLUMN_KINDS.values()) for key in part.model_fields}
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "docs")
    reference = importlib.import_module("reference_pages").build_schema_page()
    for key in keys - {"kind"}:
        assert f"\n### `{key.replace('_', '-')}` " in reference, key
    for text in MISSING_TEXTS - {""}:
        assert f"`{text}`" in page, text
    example = page.split("```toml\n")[1].split("```")[0]
    assert Schema.from_toml(example).label.positive == ("died",)


DIGESTED = """
[file]
separator = ";"
[columns]
id = { kind = "ignore" }
age = { kind = "numeric", range = [0, 100] }
sex = { kind = "categorical", categories = ["F", "M"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""


def test_a_digest_is_of_what_decides_the_reading_and_nothing_else():
    def of(old="", new=""):
        assert old in DIGESTED
        return Schema.from_toml(DIGESTED.replace(old, new)).digest

    same = {of(), of('separator = ";"', 'separator = ","'), of('id = { kind = "ignore" }\n')}
    assert len(same) == 1
    target, sick = "range = [0, 5]", 'positive = "yes", negative = "no"'
    # As it was before a label had a centre.
    assert of(sick, target) == "3a7704a236da1129625af1e0bc9d10e02b5f7a5209a6c325f2ee2c62ac796b3e"
    others = [
        of(sick, target),
        of(sick, f"{target}, centre = 2"),
        of("[0, 100]", "[0, 100], centre = 20"),
        of("[0, 100]", '[0, 100], centre = 20, transform = "log"'),
        of("100", "101"),
        of('"F", "M"', '"M", "F"'),
        of("age", "years"),
        of('"yes"', '"y"'),
        of("[file]", 'scaling = "unit"\n[file]'),
        of('positive = "yes", negative = "no"', 'positive = "no", negative = "yes"'),
    ]
    assert len(same | set(others)) == 1 + len(others)


SCHEMA = """
[columns]
id = { kind = "ignore" }
age = { kind = "numeric", range = [0, 120] }
dose = { kind = "numeric", range = [0, 1], outside = "refuse", missing = 0 }
ward = { kind = "categorical", categories = ["north", "south"] }
sick = { kind = "label", positive = ["yes"], negative = ["no"] }
"""
GOOD = ["1,40,0.5,north,yes", "2,130,,south,no", "3,7,1,north,no"]


def _csv(tmp_path, lines, header="id,age,dose,ward,sick"):
    path = tmp_path / "patients.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_file_that_fits_has_no_problem_and_a_run_reads_it(tmp_path):
    path, schema = _csv(tmp_path, GOOD), Schema.from_toml(SCHEMA)
    found = check_file(path, schema)
    assert found.records == len(read_records(path, schema, "logistic")) == 3
    assert found.problems == ()
    assert found.remarks == ("Column 'age': 1 of 3 values outside the range: clamped to it.",)


def test_every_disagreement_is_listed_at_once_with_its_lines(tmp_path):
    odd = ["4,oops,2,north,yes", "5,,0.5,east,maybe", "6,oops,0.5,east,", "7,1,oops,north,no"]
    path = _csv(tmp_path, [*GOOD, *odd, *["8,1,0,east,no"] * 6])
    problems = check_file(path, Schema.from_toml(SCHEMA)).problems
    assert sorted(problems) == sorted(
        [
            "Column 'age', lines 5, 7: Expected a number, got 'oops' (file.null-values of the "
            "schema lists the texts that mean an empty value).",
            "Column 'age', line 6: Expected a number, got an empty value (the column's `missing` "
            "in the schema replaces it; file.null-values lists the texts that mean one).",
            "Column 'dose', line 5: Expected a number in [0, 1], got 2.",
            "Column 'dose', line 8: Expected a number, got 'oops' (file.null-values of the "
            "schema lists the texts that mean an empty value).",
            "Column 'ward', lines 6, 7, 9, 10, 11 and 3 more: Expected one of the categories "
            "'north', 'south', got 'east'.",
            "Column 'sick', line 7: Expected a label in every record (missing = \"drop\" leaves "
            "others out).",
            "Column 'sick', line 6: Expected one of the labels 'yes', 'no', got 'maybe'.",
        ]
    )


def test_columns_that_are_missing_or_unknown_stand_beside_the_cells(tmp_path):
    path = _csv(tmp_path, ["1,old,south,9"], header="id,age,ward,height")
    problems = check_file(path, Schema.from_toml(SCHEMA)).problems
    assert len(problems) == 4
    for part in ("'dose' of the schema", "'sick' of the schema", "'height' of the file", "'old'"):
        assert sum(part in problem for problem in problems) == 1


def test_a_wrong_separator_and_ragged_lines_are_told(tmp_path):
    path = _csv(tmp_path, [line.replace(",", ";") for line in GOOD], "id;age;dose;ward;sick")
    said = (
        f"{path}: Expected fields separated by ',' (file.separator in the schema), got fields that "
        "look separated by ';' (separator = \";\" reads it, under [file] or next to its path in "
        "data.files)."
    )
    for file in ("", "[file]\nheader = false\n"):
        schema = Schema.from_toml(file + SCHEMA)
        assert check_file(path, schema).problems == (said,)
        with pytest.raises(DataError) as refused:
            read_records(path, schema, "logistic")
        assert str(refused.value) == said
    path = _csv(tmp_path, [*GOOD, "1,2,3", "1,2,3,4,5,6"])
    problems = check_file(path, Schema.from_toml(SCHEMA)).problems
    assert problems == ("Expected 5 fields in every record, got others in lines 5, 6.",)
    bare = Schema.from_toml("[file]\nheader = false\n" + SCHEMA)
    path.write_text("1,2\n")
    (problem,) = check_file(path, bare).problems
    assert problem == "Expected 5 fields in every record, got others in line 1."


@pytest.mark.parametrize("form", ["parquet", "npz", "csv.gz"])
def test_the_other_formats_are_checked_alike(form, tmp_path):
    path = tmp_path / f"a.{form}"
    schema = Schema.from_toml("""
    [columns]
    x = { kind = "numeric", range = [0, 1] }
    y = { kind = "label", classes = [0, 1], range = [0, 1] }
    """)
    x, y = np.array([0.5, np.nan, 2.0]), np.array([0, 1, 2])
    if form == "parquet":
        pl.DataFrame({"x": x, "y": y}).write_parquet(path)
    elif form == "npz":
        np.savez(path, x=x, y=y)
    else:
        path.write_bytes(gzip.compress(b"x,y\n0.5,0\nnan,1\n2.0,2\n"))
    found = check_file(path, schema)
    assert len(found.problems) == 2
    assert any("Expected one of the classes" in problem for problem in found.problems)
    assert any("'x'" in problem for problem in found.problems)


def test_many_wrong_values_of_a_column_are_cut_and_said(tmp_path):
    path = _csv(tmp_path, [f"1,40,0.5,w{k},yes" for k in range(30)])
    problems = check_file(path, Schema.from_toml(SCHEMA)).problems
    assert len(problems) == 21
    assert problems[-1] == "Column 'ward': further values that the schema does not allow."


def test_the_command_says_so_by_its_status(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(SCHEMA)
    command = ["schema", "check", str(_csv(tmp_path, GOOD)), str(tmp_path / "s.toml")]
    assert not app(command, standalone_mode=False)
    assert "✓ 3 records as" in capsys.readouterr().out
    _csv(tmp_path, ["1,x,0,north,no"])
    assert app(command, standalone_mode=False) == 2
    assert "✗ Column 'age', line 2" in capsys.readouterr().err
    assert app([*command[:2], str(tmp_path / "none.csv"), command[3]], standalone_mode=False) == 2
    assert "none.csv: Expected a file, got nothing there" in capsys.readouterr().err


def test_of_several_files_each_is_told_by_its_name(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(SCHEMA)
    good = _csv(tmp_path, GOOD).rename(tmp_path / "party-1.csv")
    bad = _csv(tmp_path, ["1,x,0,north,no"]).rename(tmp_path / "party-2.csv")
    command = ["schema", "check", str(tmp_path / "party-*.csv"), str(tmp_path / "s.toml")]
    assert app(command, standalone_mode=False) == 2
    shown = capsys.readouterr()
    assert f"✓ {good}: 3 records as" in shown.out
    assert f"✗ {bad}: Column 'age', line 2" in shown.err
