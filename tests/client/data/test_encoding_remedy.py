"""A CSV that is UTF-8 and read in an encoding of one byte per character gets the remedy."""

import pytest

from parley.client.data.csv_detection import find_encoding_remedy, guess_encoding
from parley.client.data.data_error import DataError
from parley.client.data.data_sources import FormattedFile
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema
from parley.client.data.schema_check import check_file
from parley.client.data.schema_inference.schema_draft import infer_schema

SCHEMA = """
[file]
encoding = "{}"
[columns.age]
kind = "numeric"
range = [0, 120]
[columns.town]
kind = "categorical"
categories = ["Zürich", "Bern"]
[columns.sick]
kind = "label"
positive = "yes"
negative = "no"
"""
ROWS = "".join(
    f"{at % 9},{('Zürich', 'Bern')[at % 2]},{('no', 'yes')[at % 2]}\n" for at in range(9)
)
TEXT = "age,town,sick\n" + ROWS
REMEDY = 'encoding = "utf-8", under [file] or next to its path in data.files, reads it.'


def read(path, encoding):
    return read_records(path, Schema.from_toml(SCHEMA.format(encoding)), "logistic")


@pytest.mark.parametrize("encoding", ["latin-1", "windows-1252"])
def test_a_refused_category_of_a_file_in_utf_8_names_the_encoding(encoding, tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text(TEXT, encoding="utf-8")
    with pytest.raises(DataError, match="one of the categories") as refused:
        read(path, encoding)
    assert str(refused.value).endswith(REMEDY)
    assert refused.value.log_message.endswith(REMEDY)
    assert "rich" not in refused.value.log_message.replace("Zürich", "")  # no value of a record
    assert len(read(path, "utf-8").labels) == 9  # the remedy works
    part = FormattedFile(name=str(path), keys={"encoding": encoding})
    with pytest.raises(DataError, match=r"reads it\.$"):
        read([part], "utf-8")


def test_checking_and_inferring_remark_on_it(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text(TEXT, encoding="utf-8")
    checked = check_file(path, Schema.from_toml(SCHEMA.format("latin-1")))
    assert any(REMEDY in each for each in checked.remarks)
    assert any(REMEDY in each for each in infer_schema(path, encoding="latin-1").remarks)
    assert not any(REMEDY in each for each in infer_schema(path).remarks)


def test_other_faults_and_other_files_get_no_such_remedy(tmp_path):
    latin, plain = tmp_path / "latin.csv", tmp_path / "plain.csv"
    latin.write_text(TEXT, encoding="latin-1")
    plain.write_text(TEXT.replace("Zürich", "Basel"), encoding="ascii")
    assert len(read(latin, "latin-1").labels) == 9
    assert guess_encoding(plain) == "utf-8"
    assert find_encoding_remedy(latin, "latin-1") == find_encoding_remedy(plain, "latin-1") == ""
    with pytest.raises(DataError, match="categories") as refused:
        read(plain, "latin-1")
    assert "UTF-8" not in str(refused.value)
