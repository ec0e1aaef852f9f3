"""Synthetic records are held once, from their draw to the rows that are learned from."""

import tracemalloc

import numpy as np
import pytest

from parley.client.features.preparation import prepared_rows
from parley.server.jobs.file import load_job
from parley.simulations.data.experiment import prepared_data


def rows_of(records, intercept):
    job = load_job(
        overrides=[
            *("data.source=synthetic", f"data.records={records}", "data.test-fraction=0"),
            *("parties.count=50", "parties.min-records=1", f"model.intercept={intercept}"),
        ]
    )
    return prepared_data(job).rows


@pytest.mark.parametrize("intercept", ["true", "false"])
def test_the_peak_is_a_little_more_than_the_rows(intercept):
    rows_of(1000, intercept)  # what is imported on the way is no record
    tracemalloc.start()
    try:
        rows = rows_of(500_000, intercept)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows.shape == (500_000, 20 + (intercept == "true"))
    assert peak < 1.75 * 500_000 * 21 * 8


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("count", [None, 9000, 6000])
def test_rows_in_the_place_of_what_they_are_made_of_are_the_same_rows(intercept, count):
    rng = np.random.default_rng(4)
    room = rng.normal(size=(9000, 7))
    raw = room[:, :6]
    order = None if count is None else rng.permutation(9000)[:count]
    expected = prepared_rows(raw, intercept=intercept, order=order)
    found = prepared_rows(raw, intercept=intercept, order=order, room=room)
    assert found.base is room
    np.testing.assert_array_equal(found, expected)
