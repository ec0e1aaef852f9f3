"""`parley schema check` lists every disagreement at once, and what a run would refuse alone."""

import gzip

import numpy as np
import polars as pl
import pytest

from parley.cli import app
from parley.client.data.records import read_records
from parley.client.data.schema import Schema
from parley.client.data.schema_check import check_file
from parley.client.data.table import DataError

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
    assert found.remarks == (
        "Column 'age': 1 of 3 values lie outside the range; they are clamped to it.",
    )


def test_every_disagreement_is_listed_at_once_with_its_lines(tmp_path):
    odd = ["4,oops,2,north,yes", "5,,0.5,east,maybe", "6,oops,0.5,east,", "7,1,oops,north,no"]
    path = _csv(tmp_path, [*GOOD, *odd, *["8,1,0,east,no"] * 6])
    problems = check_file(path, Schema.from_toml(SCHEMA)).problems
    assert sorted(problems) == sorted(
        [
            "Column 'age', lines 5, 7: Expected a number, got 'oops' (file.null-values of the "
            "schema lists the texts that mean an empty value).",
            "Column 'age', line 6: Expected a number, got an empty value (the column's `missing` "
            "in the schema says what to put there, file.null-values which texts mean one).",
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
        f"{path}: Expected fields separated by ',', as file.separator of the schema says, got ones "
        "that look separated by ';' (separator = \";\" under [file] reads it)."
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
    assert problems[-1] == "Column 'ward': and more values that the schema doesn't allow."


def test_the_command_says_so_by_its_status(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(SCHEMA)
    command = ["schema", "check", str(_csv(tmp_path, GOOD)), str(tmp_path / "s.toml")]
    assert not app(command, standalone_mode=False)
    assert "✓ 3 records are what" in capsys.readouterr().out
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
    assert f"✓ {good}: 3 records are what" in shown.out
    assert f"✗ {bad}: Column 'age', line 2" in shown.err
