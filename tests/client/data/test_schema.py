"""The schema: what is refused and how, the public maps, and that nothing else is needed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parley.client.data.columns import MISSING_TEXTS, ArrayColumn, NumericColumn, canonical_text
from parley.client.data.schema import COLUMN_KINDS, FileFormat, Schema, SchemaError, load_schema

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
        ("[columns]\n" + AGE, 'exactly one column of kind "label", got none'),
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
    assert canonical_text(value) == text


def test_arrays_encode_like_numbers():
    column = ArrayColumn(kind="array", shape=(2,), range=(0, 16), centre=0)
    assert column.encode(np.array([[0.0, 8], [16, 32]])).tolist() == [[0, 0.5], [1, 1]]


def test_every_key_of_a_schema_and_every_missing_text_is_on_the_documented_page():
    page = (Path(__file__).resolve().parents[3] / "docs" / "schema.md").read_text(encoding="utf-8")
    for kind, part in {"": FileFormat, **COLUMN_KINDS}.items():
        assert not kind or f"### {kind}\n" in page
        for name in part.model_fields:
            if name != "kind":
                assert f"`{name.replace('_', '-')}`" in page or f"`{name} = " in page, name
    for text in MISSING_TEXTS - {""}:
        assert f"`{text}`" in page, text
    example = page.split("```toml\n")[1].split("```")[0]
    assert Schema.from_toml(example).label.missing == "drop"


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
    others = [
        of("100", "101"),
        of('"F", "M"', '"M", "F"'),
        of("age", "years"),
        of('"yes"', '"y"'),
        of("[file]", 'scaling = "unit"\n[file]'),
        of('positive = "yes", negative = "no"', 'positive = "no", negative = "yes"'),
    ]
    assert len(same | set(others)) == 1 + len(others)
