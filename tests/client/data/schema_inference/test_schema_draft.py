"""A first schema from files as people have them: every column is shown, with its reason."""

import re
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from parley.client.data.data_error import DataError
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, SchemaError
from parley.client.data.schema_inference.schema_draft import infer_schema


def reading(inferred, name):
    return next(column for column in inferred.columns if column.name == name)


def patients(tmp_path, *, encoding="utf-8", separator=",", end="\n", decimal=".", odd=()):
    """600 patients of three hospitals, a tenth of the blood pressures missing in five spellings."""
    rng = np.random.default_rng(4)
    header = ["id", '"ward ""old"" or new"', " age", "pressure", "note", "seen", "sick"]
    lines = [separator.join(header)]
    for k in range(600):
        pressure = f"{rng.uniform(90, 180):.1f}".replace(".", decimal)
        if k % 10 == 3:
            pressure = ["NA", "", "null", "?", "-"][k // 10 % 5]
        ward = ["Köln", "São Paulo", '"Zürich, ""Spital"""'][k % 3]
        age = dict(odd).get(k, str(rng.integers(18, 95)))
        cells = [
            str(7000 + k), ward, age, pressure, f"note {k}", f"2024-01-{k % 28 + 1:02}",
            ["no", "yes"][int(rng.random() < 0.4)],
        ]  # fmt: skip
        lines.append(separator.join(cells))
    path = tmp_path / "patients.csv"
    path.write_bytes((end.join(lines) + end + end).encode(encoding))
    return path


WRITTEN = {
    "plain": {},
    "byte-order mark and CRLF": {"encoding": "utf-8-sig", "end": "\r\n"},
    "German Excel": {"encoding": "cp1252", "separator": ";", "decimal": ",", "end": "\r\n"},
    "tabs": {"separator": "\t"},
    "Unicode text": {"encoding": "utf-16", "separator": "\t", "end": "\r\n"},
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_messy_file_gives_a_schema_that_reads_it_with_nothing_dropped_silently(case, tmp_path):
    path = patients(tmp_path, **WRITTEN[case])
    inferred = infer_schema(path, label="sick")
    kinds = {column.name: column.entry["kind"] for column in inferred.columns}
    assert kinds == {
        "id": "ignore",
        'ward "old" or new': "categorical",
        "age": "numeric",
        "pressure": "numeric",
        "note": "ignore",
        "seen": "ignore",
        "sick": "label",
    }
    assert "identifier" in reading(inferred, "id").why
    assert "600 distinct texts" in reading(inferred, "note").why
    assert "dates" in reading(inferred, "seen").why
    pressure = reading(inferred, "pressure")
    assert "60 of 600 missing (10 %" in pressure.remarks[0]
    assert pressure.entry["missing"] == pressure.entry["centre"] == pytest.approx(135, abs=10)
    assert reading(inferred, 'ward "old" or new').entry["categories"][0] == "Köln"
    schema = Schema.from_toml(inferred.text)
    assert set(schema.file.null_values) == {"NA", "null", "?", "-"}
    records = read_records(path, schema, "logistic", group_column='ward "old" or new')
    assert len(records) == 600
    assert records.clamped == {}
    assert set(records.groups) == {"Köln", "São Paulo", 'Zürich, "Spital"'}


def test_at_most_1_percent_of_odd_cells_are_named_with_their_lines_and_not_left_out(tmp_path):
    path = patients(tmp_path, odd={17: "oops", 400: "40ish"})
    inferred = infer_schema(path, label="sick")
    age = reading(inferred, "age")
    assert age.entry["kind"] == "numeric"
    assert "'oops', '40ish' in lines 19, 402" in age.remarks[0]
    assert "oops" not in inferred.text
    with pytest.raises(DataError, match="line 19, column 'age': Expected a number, got 'oops'"):
        read_records(path, Schema.from_toml(inferred.text), "logistic")


def test_more_odd_cells_make_it_a_column_of_texts_and_the_terminal_says_why(tmp_path):
    path = patients(tmp_path, odd={k: f"about {k}" for k in range(0, 600, 50)})
    age = reading(infer_schema(path, label="sick"), "age")
    assert age.entry["kind"] == "ignore"
    assert "more than 1 %" in age.why
    assert "12 of 600 cells not a number" in age.remarks[0]
    assert "'about 0', 'about 50'" in age.remarks[0]
    assert "lines 2, 52" in age.remarks[0]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("unbekannt", "nicht erhoben"), "numeric"),
        (("a", "b", "c", "d"), "ignore"),  # more than few
        (("<5",), "ignore"),  # it says a number
    ],
)
def test_few_words_among_many_numbers_become_null_values_whatever_they_are(words, kind, tmp_path):
    odd = {k: words[k % len(words)] for k in range(0, 600, 9)}
    path = patients(tmp_path, odd=odd)
    inferred = infer_schema(path, label="sick")
    age = reading(inferred, "age")
    assert age.entry["kind"] == kind
    schema = Schema.from_toml(inferred.text)
    assert (set(words) <= set(schema.file.null_values)) == (kind == "numeric")
    if kind == "numeric":
        assert f"67 of 600 missing (11 %: {words[0]} 34, {words[1]} 33)" in age.remarks[0]
        assert len(read_records(path, schema, "logistic")) == 600


def test_several_files_give_one_schema_that_reads_each_of_them(tmp_path):
    for first, ward in ((0, "north"), (90, "east")):
        rows = [f"{first + k},{20 + k},{ward},{'yes' if k % 2 else 'no'}" for k in range(20)]
        rows[3] = f"{first + 3},23,{ward},"
        (tmp_path / f"{ward}.csv").write_text("\n".join(["id,age,ward,sick", *rows]))
    (tmp_path / "south.csv").write_text("sick,ward,age,id\nyes,south,70,200\nno,south,71,201\n")
    files = [tmp_path / f"{ward}.csv" for ward in ("north", "east", "south")]
    inferred = infer_schema(*files, label="sick")
    assert inferred.records == 42
    assert "from north.csv, east.csv, south.csv (42 records)" in inferred.text
    assert reading(inferred, "id").entry["kind"] == "ignore"
    assert reading(inferred, "ward").entry["categories"] == ["east", "north"]
    assert reading(inferred, "ward").entry["other"]
    assert "1 of fewer than 10 records" in reading(inferred, "ward").why
    assert "south" not in inferred.text.replace("south.csv", "")
    (missing,) = reading(inferred, "sick").remarks
    assert "north.csv line 5; " in missing
    assert "east.csv line 5: " in missing
    text = inferred.text.replace('negative = ["no"]', 'negative = ["no"], missing = "drop"')
    schema = Schema.from_toml(text)
    assert [len(read_records(file, schema, "logistic")) for file in files] == [19, 19, 2]


def test_files_that_are_not_alike_are_refused_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("age,sick\n1,yes\n2,no\n")
    (tmp_path / "b.csv").write_text("age;sick\n1;yes\n2;no\n")
    (tmp_path / "c.csv").write_text("old,sick\n1,yes\n2,no\n")
    with pytest.raises(DataError, match=r"b\.csv: Expected separator ',', as in .*a\.csv"):
        infer_schema(tmp_path / "a.csv", tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"c\.csv: Expected the columns of .*no 'age', also 'old'"):
        infer_schema(tmp_path / "a.csv", tmp_path / "c.csv")


def test_missing_labels_are_shown_and_left_to_a_persons_decision(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(
        "x,y\n" + "".join(f"{k * 3 % 7},{['yes', 'no', 'NA', ''][k % 4]}\n" for k in range(40))
    )
    inferred = infer_schema(path)
    label = reading(inferred, "y")
    assert label.entry == {"kind": "label", "positive": ["yes"], "negative": ["no"]}
    assert "20 of 40 missing (50 %: NA 10, empty 10) in lines 4, 5, 8, 9, 12" in label.remarks[0]
    with pytest.raises(DataError, match="a label in every record"):
        read_records(path, Schema.from_toml(inferred.text), "logistic")
    text = inferred.text.replace('kind = "label"', 'kind = "label", missing = "drop"')
    assert len(read_records(path, Schema.from_toml(text), "logistic")) == 20


def test_the_schema_quotes_no_cell_beyond_ranges_and_categories(tmp_path):
    # It is made to be shared: what names a line or a single cell is for the terminal alone.
    text = infer_schema(patients(tmp_path, odd={5: "Mrs Miller"}), label="sick").text
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert "NO PRIVACY BUDGET COVERS" in text
    assert not re.search(r"Miller|note \d|line|2024|700\d", "\n".join(comments).lower())


def test_how_a_file_is_written_can_be_said_instead_of_found_out(tmp_path):
    path = patients(tmp_path, encoding="cp1252", separator=";")
    with pytest.raises(DataError, match=r"line 2: Expected text in utf-8 .*got byte 0xf6"):
        infer_schema(path, encoding="utf-8")
    with pytest.raises(DataError, match="line 4: Expected 1 fields, got 2"):
        infer_schema(path, separator=",")
    with pytest.raises(SchemaError, match="one ASCII character"):
        infer_schema(path, separator=", ")
    with pytest.raises(SchemaError, match="windows-1252"):
        infer_schema(path, encoding="cp1252")
    bare = tmp_path / "bare.csv"
    bare.write_text("1,2,0\n3,4,1\n5,9,0\n")
    assert "--no-header" in infer_schema(bare).remarks[0]
    assert infer_schema(bare, header=False).records == 3


def test_a_decimal_comma_is_read_and_a_point_beside_it_refused(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("x;y\n1,5;0\n-0,25;1\n2;1\n")
    schema = Schema.from_toml(infer_schema(path).text)
    assert schema.file.decimal == ","
    assert schema.columns["x"].range == (-1, 2)
    read = read_records(path, schema, "logistic").features[:, 0]
    np.testing.assert_allclose(read, [0, -0.7, 0.2], atol=1e-11)
    # Saved again with points, it is the same data set.
    pointed = tmp_path / "p.csv"
    pointed.write_text("x,y\n2,1\n1.50,0\n-.25,1\n")
    same = Schema.from_toml(infer_schema(pointed).text)
    contents = {
        str(read_records(*one, "logistic").contents) for one in ((path, schema), (pointed, same))
    }
    assert len(contents) == 1
    path.write_text("x;y\n1.500;0\n-0,25;1\n")
    with pytest.raises(DataError, match=r"line 2, column 'x': Expected a number, got '1\.500'"):
        read_records(path, schema, "logistic")


@pytest.mark.parametrize("large", ["inf", "1e999", "1e308", "-1.7e308"])
def test_values_without_a_range_of_numbers_are_ignored_with_that_reason(large, tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(f"x,z,y\n1,{large},0\n3,2,1\n2,3,1\n")
    column = reading(infer_schema(path), "z")
    assert column.entry == {"kind": "ignore"}
    assert "infinite" in column.why


def test_numbers_that_a_parquet_file_stores_as_text_are_not_taken_for_numbers(tmp_path):
    path = tmp_path / "d.parquet"
    columns = {"x": ["1", "2", "NA"] * 10, "z": [1.0, None, 3] * 10, "y": [0, 1, 1] * 10}
    pl.DataFrame(columns).write_parquet(path)
    inferred = infer_schema(path)
    assert reading(inferred, "x").entry == {
        "kind": "categorical", "categories": ["1", "2"], "other": True,
    }  # fmt: skip
    assert reading(inferred, "z").entry["missing"] == 2
    assert len(read_records(path, Schema.from_toml(inferred.text), "logistic")) == 30


def test_centres_are_medians_and_long_tails_are_outside_the_range(tmp_path):
    rng = np.random.default_rng(2)
    visits = np.minimum(rng.exponential(3, 2000), 20).round(2)
    visits[7] = 77.0
    even = rng.uniform(0, 0.1, 2000)
    table = pl.DataFrame({"even": even, "tail": visits, "y": visits})
    table.write_parquet(tmp_path / "d.parquet")
    inferred = infer_schema(tmp_path / "d.parquet")
    assert reading(inferred, "even").entry == {
        "kind": "numeric", "range": [0, 0.1], "centre": float(f"{np.median(even):.1e}"),
    }  # fmt: skip
    median, mean = (float(f"{each:.1e}") for each in (np.median(visits), visits.clip(0, 20).mean()))
    assert reading(inferred, "tail").entry == {
        "kind": "numeric", "range": [0, 20], "centre": median, "transform": "log",
    }  # fmt: skip
    assert reading(inferred, "y").entry == {"kind": "label", "range": [0, 20], "centre": mean}
    for name in ("tail", "y"):
        assert "long tails" in reading(inferred, name).why
    found = read_records(tmp_path / "d.parquet", Schema.from_toml(inferred.text), "ridge")
    assert np.abs(found.labels).max() == 1
    assert abs(found.labels.mean()) < 0.01


def test_the_terminal_lists_every_column_with_its_reading(tmp_path):
    path = patients(tmp_path, encoding="cp1252", separator=";", odd={17: "oops"})
    done = subprocess.run(
        [sys.executable, "-m", "parley", "schema", "infer", str(path), "--label", "sick"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
    )
    assert Schema.from_toml(done.stdout).label_column == "sick"
    shown = done.stderr
    assert "600 records" in shown
    assert "encoding windows-1252" in shown
    assert "separator semicolon" in shown
    for name, kind in (("id", "ignore"), ("age", "numeric"), ("seen", "ignore"), ("sick", "label")):
        assert re.search(rf"^{name} +{kind} ", shown, re.MULTILINE), shown
    assert "60 of 600 missing" in shown
    assert "'oops' in line 19" in shown
    assert "not covered by the privacy budget" in shown


def test_what_names_a_record_or_its_person_is_no_feature_and_a_range_is_where_values_lie(tmp_path):
    rows = np.arange(40)
    table = {
        "": rows * 3 + 7,  # of a file that others were drawn from
        "customerId": (rows * 37) % 40 + 1,
        "patient_id": rows // 3,
        "name": [f"Ann {k:02}" for k in rows],
        "paid": rows * 13 % 37,
        "year": 1983 + rows % 9,
        "income": [f"${k + 1},{k * 7 % 900 + 100}" for k in rows],
        "sick": rows % 2,
    }
    path = tmp_path / "d.csv"
    pl.DataFrame(table).write_csv(path)
    inferred = infer_schema(path)
    for name in ("", "customerId", "patient_id", "name"):
        assert reading(inferred, name).entry == {"kind": "ignore"}, name
        assert "identifier" in reading(inferred, name).why
    assert reading(inferred, "paid").entry["kind"] == "numeric"
    assert reading(inferred, "year").entry["range"] == [1983, 1991]
    assert "thousands" in reading(inferred, "income").why
    assert "'1' is the positive one" in reading(inferred, "sick").why


def test_a_first_line_whose_names_are_cells_of_their_columns_is_asked_about(tmp_path):
    cells = "\n".join(
        f"{k % 7}\t{['M', 'F'][k % 2]}\t{['low', 'high'][k // 3 % 2]}" for k in range(20)
    )
    bare, named = tmp_path / "bare.tsv", tmp_path / "named.tsv"
    bare.write_text(cells)
    named.write_text("2019\tsex\trisk\n" + cells)
    assert "--no-header" in infer_schema(bare).remarks[0]
    assert infer_schema(named).remarks == ()


TEXTS = {
    "spellings": ["yes", "Yes ", "YES", "y", "no", "No"],
    "ticked": ["1", ""],
    "postcode": ["01069", "10115", "99423", "80331"],
    "seen at": ["08:15", "23:59", "7:30"],
    "paid": ["(1,250)", "3,400", "17,000"],
}


def test_texts_as_people_write_them(tmp_path):
    rows = np.arange(400)
    table = {name: [texts[k * 7 % len(texts)] for k in rows] for name, texts in TEXTS.items()}
    table["paid"] = [f"({k},{k % 900 + 100})" for k in rows]
    table["code"] = [f"I{k}" if k < 150 else f"J{k % 4}" for k in rows]
    table["name"] = [f"Ann {k // 2}" for k in rows]
    table["temperature"] = [str(-999 if k % 20 == 3 else 36 + k % 4) for k in rows]
    path = tmp_path / "d.csv"
    pl.DataFrame(table).write_csv(path)
    inferred = infer_schema(path, label="spellings")
    assert reading(inferred, "spellings").entry == {
        "kind": "label", "positive": ["YES", "Yes", "y", "yes"], "negative": ["No", "no"],
    }  # fmt: skip
    assert reading(inferred, "ticked").entry == {
        "kind": "categorical", "categories": [1], "other": True,
    }  # fmt: skip
    assert reading(inferred, "postcode").entry["categories"][0] == "01069"
    assert "times" in reading(inferred, "seen at").why
    assert "thousands" in reading(inferred, "paid").why
    assert reading(inferred, "code").entry == {
        "kind": "categorical", "categories": ["J0", "J1", "J2", "J3"], "other": True,
    }  # fmt: skip
    assert reading(inferred, "name").entry == {"kind": "ignore"}
    temperature = reading(inferred, "temperature")
    assert temperature.entry["range"] == [36, 39]
    assert "-999 is in 20 of 400 cells" in temperature.remarks[0]
    found = read_records(path, Schema.from_toml(inferred.text), "logistic")
    assert 0 < found.labels.sum() < 400


def test_counts_are_a_target_and_grades_are_classes(tmp_path):
    path = tmp_path / "d.csv"
    for most, key in ((13, "range"), (10, "classes")):
        path.write_text("x,y\n" + "".join(f"{k * 3 % 7},{k % (most + 1)}\n" for k in range(140)))
        assert key in reading(infer_schema(path), "y").entry


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Ward 5\n\nage,sick\n1,0\n2,1\n3,1\n4,0\n", "line 1: .*each of 2 columns.*delete"),
        ("sep=;\nage;ward;sick\n1;a;0\n2;b;1\n", "line 1: .*each of 3 columns.*delete"),
        ("age,age,sick\n1,1,0\n2,2,1\n", "rename one in the file"),
        ("sick\n0\n1\n", "the label 'sick' alone"),
        (
            "".join(f"a{k}," for k in range(9)) + "sick\n" + "1," * 9 + "0",
            r"among \['sick'\], got 'sicc'",
        ),
        ("x,y\n" + "".join(f"{k % 3},{k}.5%\n" for k in range(120)), "numbers with percent signs"),
    ],
)
def test_what_a_draft_cannot_be_made_of_says_what_to_do(text, told, tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=told):
        infer_schema(path, label="sicc" if "sicc" in told else None)


def test_a_draft_names_no_category_of_fewer_than_ten_records(tmp_path):
    path = tmp_path / "wards.csv"
    wards = ["north"] * 10 + ["south"] * 25 + ["hospice"] * 9 + ["morgue"]
    rows = [f"{k},{ward},{k % 2}" for k, ward in enumerate(wards)]
    path.write_text("\n".join(["age,ward,sick", *rows]) + "\n")
    inferred = infer_schema(path)
    assert reading(inferred, "ward").entry["categories"] == ["north", "south"]
    assert "2 of fewer than 10 records are not named" in reading(inferred, "ward").why
    assert not re.search("hospice|morgue", inferred.text)
    records = read_records(path, Schema.from_toml(inferred.text), "logistic")
    others = records.features[:, records.feature_names.index("ward=(other)")]
    assert int((others > 0).sum()) == 10


@pytest.mark.parametrize(
    ("counts", "entry", "why"),
    [
        (
            {"flu": 30, "rabies": 9},
            {"positive": "rest", "negative": ["flu"]},
            "one of fewer than 10 records: it is not named",
        ),
        (
            {"alive": 9, "died": 40},
            {"positive": ["died"], "negative": "rest"},
            "one of fewer than 10 records: it is not named",
        ),
        ({"no": 30, "yes": 2}, {"positive": ["yes"], "negative": ["no"]}, "check that 'yes'"),
        (
            {"flu": 30, "cold": 12, "rabies": 9, "plague": 1},
            {"classes": ["cold", "flu"]},
            "2 of fewer than 10 records are not named, and a run refuses their records: add them",
        ),
        (
            {"flu": 30, "rabies": 9, "plague": 1},
            {"positive": ["flu"], "negative": "rest"},
            "2 of fewer than 10 records are not named",
        ),
        ({3: 9, 5: 30, 7: 30}, {"classes": [5, 7]}, "1 of fewer than 10 records is not named"),
    ],
)
def test_a_draft_names_no_label_of_fewer_than_ten_records(tmp_path, counts, entry, why):
    path = tmp_path / "wards.csv"
    labels = [label for label, count in counts.items() for _ in range(count)]
    rows = [f"{k % 17},{label}" for k, label in enumerate(labels)]
    path.write_text("\n".join(["age,outcome", *rows]) + "\n")
    inferred = infer_schema(path)
    found = reading(inferred, "outcome")
    rare = [label for label, count in counts.items() if count < 10 and label not in (3, "yes")]
    drafted = inferred.text.split("[columns]")[1]
    assert found.entry == {"kind": "label", **entry}
    assert why in found.why
    assert not any(label in drafted for label in rare)
    assert not any(label in remark for label in rare for remark in found.remarks)
    if "rest" in entry.values():
        schema = Schema.from_toml(inferred.text)
        assert len(read_records(path, schema, "logistic")) == len(labels)


def test_a_draft_of_rare_labels_alone_says_what_to_do_and_names_none(tmp_path):
    path = tmp_path / "wards.csv"
    path.write_text("age,outcome\n" + "30,rabies\n40,plague\n" * 9)
    with pytest.raises(DataError, match="at least 10 records") as refused:
        infer_schema(path)
    assert "rabies" not in str(refused.value)


def test_a_column_of_rare_texts_alone_is_ignored_with_the_reason(tmp_path):
    path = tmp_path / "wards.csv"
    rows = [f"{k % 7},ward {k % 4},{k % 2}" for k in range(36)]
    path.write_text("\n".join(["age,ward,sick", *rows]) + "\n")
    column = reading(infer_schema(path), "ward")
    assert column.entry == {"kind": "ignore"}
    assert column.why == "4 texts, none in 10 records or more"


def test_a_draft_says_so_in_a_key_that_is_no_part_of_the_digest(tmp_path):
    path = tmp_path / "patients of \u202e2024.csv"
    path.write_text("age,sick\n" + "".join(f"{k % 7},{k % 2}\n" for k in range(20)))
    inferred = infer_schema(path)
    draft = Schema.from_toml(inferred.text)
    assert draft.drafted
    assumed = "the schema is public (drafted from patients of ?2024.csv, not reviewed)"
    assert draft.assumption == assumed
    assert Schema.from_toml(draft.to_toml()) == draft
    reviewed = Schema.from_toml(inferred.text.replace("\ndrafted = true\n", "\n"))
    assert reviewed.assumption == ""
    assert reviewed.digest == draft.digest
    with pytest.raises(SchemaError, match="drafted"):
        Schema.from_toml(inferred.text.replace("drafted = true", 'drafted = "no"'))
