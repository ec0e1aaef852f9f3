"""Partitions: who holds which record, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.simulations.data.partitions import PartitionError, split_iid, split_test
from parley.simulations.data.uneven_partitions import (
    split_by_column,
    split_by_sizes,
    split_dirichlet,
)

PARTITIONS = {
    "iid": split_iid,
    "by-column": split_by_column,
    "dirichlet": split_dirichlet,
    "sizes": split_by_sizes,
}


def rng(seed=0):
    return np.random.default_rng(seed)


def cases(records, parties):
    labels = rng(9).choice([-1.0, 1.0], records)
    return {
        "iid": (labels, {}),
        "by-column": (np.arange(records) % parties, {}),
        "dirichlet": (labels, {"alpha": 0.3}),
        "sizes": (labels, {"sizes": [1] * (parties - 1) + [records - parties + 1]}),
    }


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(PARTITIONS)), st.integers(1, 12), st.integers(0, 60), st.integers(0, 9)
)
def test_every_partition_gives_each_record_once_and_is_repeatable(name, parties, more, seed):
    records = parties + more
    values, options = cases(records, parties)[name]
    parts = PARTITIONS[name](values, parties, rng(seed), **options)
    again = PARTITIONS[name](values, parties, rng(seed), **options)
    assert len(parts) == parties
    assert min(len(rows) for rows in parts) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(records))
    for rows, same in zip(parts, again, strict=True):
        np.testing.assert_array_equal(rows, same)


def test_a_column_keeps_each_of_its_values_together():
    hospitals = np.array(["b", "a", "b", "c", "a"])
    parts = split_by_column(hospitals, 3, rng())
    assert [hospitals[rows].tolist() for rows in parts] == [["a", "a"], ["b", "b"], ["c"]]


def skew(alpha, parties=50):
    labels = np.repeat([0, 1], 2500)
    parts = PARTITIONS["dirichlet"](labels, parties, rng(3), alpha=alpha)
    return np.std([labels[rows].mean() for rows in parts])


def test_dirichlet_skews_from_one_label_a_party_to_iid():
    assert skew(0.01) > 0.4  # nearly all parties hold one label
    assert skew(1e4) < 0.08  # binomial: √(.25/100) = .05
    # q ~ Beta(α, α) at α = 1 (uniform): sd √(1/12) = .29, drawn from 100 records each.
    assert skew(1.0) == pytest.approx(0.29, abs=0.05)


def test_dirichlet_uses_every_record_where_no_size_is_set():
    labels = rng(1).integers(0, 10, 997)
    parts = PARTITIONS["dirichlet"](labels, 20, rng(), alpha=0.05)
    assert sorted(np.concatenate(parts).tolist()) == list(range(997))
    assert {len(rows) for rows in parts} == {49, 50}


@pytest.mark.parametrize(
    ("name", "parties", "options", "message"),
    [
        ("iid", 0, {}, "at least 1 party, got 0"),
        ("iid", 11, {}, "10 records for 11 parties, 0 each.* `--set parties.count=10`"),
        ("iid", 3, {"min_records": 4}, "at least 4 records per party, .* `--set parties.count=2`"),
        ("iid", 3, {"min_records": 11}, r"3 each\. .* Use `--set parties.min-records=3`"),
        ("iid", 11, {}, "least 1 record per party.*lower data.test-fraction"),
        ("iid", 3, {"min_records": 4}, "or `--set parties.min-records=3`"),
        ("sizes", 2, {"sizes": [5]}, "2 sizes, one per party, got 1"),
        ("sizes", 2, {"sizes": [5, 6]}, "at most 10 records, got 11"),
        ("sizes", 2, {"sizes": [0, 6]}, "sizes of at least 1, got 0"),
        ("sizes", 2, {"sizes": [2, 6], "min_records": 3}, "got 2 in party 0; .*min-records=2`"),
        ("dirichlet", 2, {"alpha": 0}, "alpha > 0, got 0"),
        ("dirichlet", 11, {"alpha": 1}, "10 records for 11 parties"),
        ("by-column", 4, {}, "4 values in the column, .* got 3.* `--set parties.count=3`"),
        ("by-column", 3, {"min_records": 2}, r"got 1 in party 0 \('0'\)"),
    ],
)
def test_what_can_not_be_split_is_refused_with_numbers(name, parties, options, message):
    values = np.array([0, 1, 1, 1, 1, 1, 2, 2, 2, 2])
    with pytest.raises(PartitionError, match=message):
        PARTITIONS[name](values, parties, rng(), **options)


def test_dirichlet_refuses_targets_that_are_numbers():
    with pytest.raises(PartitionError, match="at most 1000 distinct labels"):
        PARTITIONS["dirichlet"](rng().random(2000), 2, rng(), alpha=1.0)


def test_training_and_test_records_are_disjoint():
    train, test = split_test(100, 0.25, rng())
    assert (len(train), len(test)) == (75, 25)
    assert sorted([*train, *test]) == list(range(100))
    assert len(split_test(7, 0.0, rng())[1]) == 0


@pytest.mark.parametrize(("records", "fraction"), [(10, 1.0), (10, -0.1), (10, np.nan), (1, 0.9)])
def test_a_split_that_leaves_nothing_is_refused(records, fraction):
    with pytest.raises(PartitionError, match="Expected"):
        split_test(records, fraction, rng())
