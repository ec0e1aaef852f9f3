"""At most k records of each person: whoever writes the file, whatever else is in it."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from parley.client.data.column_names import MissingColumns
from parley.client.data.data_error import DataError
from parley.client.data.memory_columns import build_memory_table
from parley.client.data.query_party_block import (
    PersonIds,
    limit_person_records,
    read_raw_party_block,
)
from parley.client.data.schema import Schema, SchemaError

SCHEMA = Schema.from_toml(
    """
[columns]
patient = { kind = "ignore" }
place = { kind = "numeric", range = [0, 1000] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
PERSONS = PersonIds(column="patient", max_records=2, key=b"of this party")


def rows(ids, places=None):
    return {
        "patient": ids,
        "place": np.arange(len(ids)) if places is None else places,
        "sick": ["no"] * len(ids),
    }


def bounded(*parties, persons=PERSONS):
    frames = [build_memory_table(each, schema=SCHEMA) for each in parties]
    return limit_person_records(read_raw_party_block(frames, SCHEMA, persons=persons), persons)


def kept_places(ids, persons=PERSONS):
    return bounded(rows(ids), persons=persons).columns["place"].tolist()


def test_of_each_person_so_many_records_count_and_those_of_few_all():
    ids = ["a"] * 50 + ["b"] + ["c"] * 2 + ["d"] * 3
    for key in range(20):
        places = kept_places(ids, replace(PERSONS, key=bytes([key])))
        assert [sum(low <= p < high for p in places) for low, high in
                ((0, 50), (50, 51), (51, 53), (53, 56))] == [2, 1, 2, 2]  # fmt: skip


def test_spellings_of_one_number_are_one_person():
    assert len(kept_places([7.0, 7.0, 7.0, 8.0])) == 3
    assert len(kept_places(["7", "7.0", " 7 ", "8"])) == 3


def test_which_records_stay_is_chosen_by_the_key_and_depends_on_no_other_person():
    ids = ["a"] * 40
    found = {tuple(kept_places(ids, replace(PERSONS, key=bytes([key])))) for key in range(30)}
    assert len(found) > 20
    assert len({place for pair in found for place in pair}) > 25
    assert kept_places(ids) == kept_places(ids)
    others = [f"b{k % 9}" for k in range(60)]
    behind = [place for place in kept_places(ids + others) if place < 40]
    ahead = [place - 60 for place in kept_places(others + ids) if place >= 60]
    mixed = np.random.default_rng(1).permutation(ids + others).tolist()
    among = np.cumsum([name == "a" for name in mixed]) - 1
    inside = [int(among[int(place)]) for place in kept_places(mixed) if mixed[int(place)] == "a"]
    assert behind == ahead == inside == kept_places(ids)


def test_a_person_of_two_parties_counts_in_both():
    block = bounded(rows(["a"] * 5), rows(["a"] * 5 + ["b"]))
    assert block.sizes.tolist() == [2, 3]


def test_a_file_in_several_batches_is_bounded_as_one(tmp_path):
    count = 150_000
    path = tmp_path / "records.parquet"
    pl.DataFrame({"patient": np.arange(count) % 3, "place": np.zeros(count),
                  "sick": ["no"] * count}).write_parquet(path)  # fmt: skip
    assert (
        limit_person_records(read_raw_party_block([path], SCHEMA, persons=PERSONS), PERSONS).records
        == 6
    )


def test_records_of_nobody_and_columns_that_can_be_asked_about_are_refused():
    with pytest.raises(
        DataError, match=r"row 2, column 'patient': Expected an identifier of the record's person"
    ):
        bounded(rows(["a", "", "b"]))
    with pytest.raises(DataError, match="row 3"):
        bounded(rows(["a", "b", "NA"]))
    with pytest.raises(SchemaError, match="kind ignore in the schema, got 'place', of kind num"):
        bounded(rows(["a"]), persons=replace(PERSONS, column="place"))
    with pytest.raises(SchemaError, match="got none 'patinet'"):
        bounded(rows(["a"]), persons=replace(PERSONS, column="patinet"))
    without = {name: cells for name, cells in rows(["a"]).items() if name != "patient"}
    with pytest.raises(MissingColumns, match="patient"):
        bounded(without)
