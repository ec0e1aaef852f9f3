"""Tests of the graph and its bounds."""

import math

import numpy as np
import pytest

from secure_agg.graph import choose_degree, neighbour_table, security_failure


@pytest.mark.parametrize(("active", "expected"), [(False, (46, 26)), (True, (96, 67))])
def test_the_specification_s_degrees_are_reproduced(active, expected):
    assert choose_degree(1000, corrupt=100, dropped=100, active=active) == expected


def test_the_hypergeometric_bound_agrees_with_scipy():
    from scipy.stats import hypergeom

    for degree, threshold in ((46, 26), (20, 9), (96, 70)):
        expected = 1000 * hypergeom.sf(threshold - 1, 999, 100, degree)
        got = security_failure(1000, degree, threshold, 100, False)
        assert got == pytest.approx(expected, rel=1e-6)
        needed = 2 * threshold - degree
        expected = 1000 * hypergeom.sf(needed - 1, 999, 100, degree) if needed > 0 else 1000
        assert security_failure(1000, degree, threshold, 100, True) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parties", "degree"), [(2, 1), (3, 2), (10, 4), (10, 5), (101, 20), (1000, 46)]
)
def test_the_graph_is_regular_symmetric_and_without_loops(parties, degree):
    table = neighbour_table(parties, degree, b"beacon")
    assert table.shape == (parties, degree)
    adjacent = np.zeros((parties, parties), dtype=bool)
    adjacent[np.arange(parties)[:, None], table] = True
    assert (adjacent.sum(axis=1) == degree).all()
    assert (adjacent == adjacent.T).all()
    assert not adjacent.diagonal().any()
    assert (np.diff(table, axis=1) > 0).all()


def test_the_graph_follows_from_the_beacon_alone():
    first = neighbour_table(200, 10, b"one")
    neighbour_table.cache_clear()
    assert np.array_equal(first, neighbour_table(200, 10, b"one"))
    assert not np.array_equal(first, neighbour_table(200, 10, b"two"))


def test_neighbours_are_a_uniform_choice():
    counts = np.zeros(30)
    for n in range(400):
        counts[neighbour_table(30, 6, n.to_bytes(4, "big"))[0]] += 1
    assert counts[0] == 0
    expected = 400 * 6 / 29
    assert np.abs(counts[1:] - expected).max() < 6 * math.sqrt(expected)


@pytest.mark.parametrize("parties", [2, 3, 10, 57, 100])
@pytest.mark.parametrize("active", [False, True])
def test_small_runs_are_complete_with_a_secure_threshold(parties, active):
    corrupt = parties // 10
    degree, threshold = choose_degree(parties, corrupt=corrupt, dropped=0, active=active)
    assert degree == parties - 1
    assert security_failure(parties, degree, threshold, corrupt, active) == 0
    if active:
        assert 2 * threshold > degree + corrupt
        assert 2 * (threshold - 1) <= degree + corrupt


@pytest.mark.parametrize(
    ("parties", "corrupt", "dropped"), [(10, 8, 3), (10, -1, 0), (10, 0, 10), (1000, 400, 400)]
)
def test_what_no_graph_can_bear_is_refused(parties, corrupt, dropped):
    with pytest.raises(ValueError, match="Expected"):
        choose_degree(parties, corrupt=corrupt, dropped=dropped, active=True)


@pytest.mark.parametrize(("parties", "degree"), [(5, 3), (5, 5), (5, -1)])
def test_a_degree_that_no_graph_has_is_refused(parties, degree):
    with pytest.raises(ValueError, match="m·k even"):
        neighbour_table(parties, degree, b"")
