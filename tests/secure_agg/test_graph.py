"""Tests of the graph and its bounds."""

import math
from fractions import Fraction

import numpy as np
import pytest

from parley.secure_agg.graph import (
    GRINDING_BITS,
    SECURITY_BITS,
    arc_failure,
    choose_degree,
    neighbour_table,
    security_failure,
)


@pytest.mark.parametrize(
    ("parties", "semi_honest", "active"),
    [
        (10, (9, 5), (9, 6)),
        (100, (99, 50), (99, 55)),
        (101, (40, 11), (32, 22)),
        (300, (42, 22), (72, 51)),
        (1000, (46, 26), (112, 80)),
        (5000, (52, 30), (136, 97)),
        (10000, (54, 30), (144, 103)),
    ],
)
def test_the_degrees_of_docs_protocol_md_are_what_is_chosen(parties, semi_honest, active):
    tenth = parties // 10
    for server, expected in ((False, semi_honest), (True, active)):
        got = choose_degree(parties, corrupt=tenth, dropped=tenth, active=server)
        assert got == expected


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
    ("parties", "degree"), [(2, 1), (3, 2), (10, 4), (10, 9), (101, 20), (1000, 46)]
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


@pytest.mark.parametrize(("parties", "degree"), [(5, 3), (12, 3), (60, 9), (5, 5), (5, -1)])
def test_a_degree_that_is_odd_or_that_no_graph_has_is_refused(parties, degree):
    with pytest.raises(ValueError, match="even below that"):
        neighbour_table(parties, degree, b"")


def _exactly(parties, half, corrupt, surplus):
    """P[two given disjoint windows have >= surplus corrupt each], in whole numbers."""
    ways = sum(
        math.comb(half, a) * math.comb(half, b) * math.comb(parties - 2 * half, corrupt - a - b)
        for a in range(surplus, half + 1)
        for b in range(surplus, half + 1)
        if a + b <= corrupt
    )
    return Fraction(ways, math.comb(parties, corrupt))


@pytest.mark.parametrize(
    ("parties", "degree", "threshold", "corrupt"),
    [
        (30, 8, 6, 6),
        (150, 44, 30, 15),
        (300, 72, 51, 30),
        (1000, 112, 80, 100),
        (1000, 96, 67, 100),
    ],
)
def test_the_bound_on_two_windows_is_the_exact_sum(parties, degree, threshold, corrupt):
    half = degree // 2
    exact = _exactly(parties, half, corrupt, threshold - half) * math.comb(parties, 2)
    assert arc_failure(parties, degree, threshold, corrupt) == pytest.approx(
        float(exact), rel=1e-9, abs=0
    )


def test_the_old_parameters_of_a_thousand_parties_had_less_than_37_bits_against_chosen_drops():
    assert 36 < -math.log2(arc_failure(1000, 96, 67, 100)) < 37
    assert -math.log2(arc_failure(1000, 112, 80, 100)) > SECURITY_BITS + GRINDING_BITS


@pytest.mark.parametrize("parties", [101, 120, 300, 1000])
def test_the_chosen_threshold_is_the_least_that_the_bounds_allow(parties):
    corrupt = parties // 10
    degree, threshold = choose_degree(parties, corrupt=corrupt, dropped=corrupt, active=True)
    bits = 2.0 ** -(SECURITY_BITS + GRINDING_BITS)

    def failure(k, t):
        return max(
            arc_failure(parties, k, t, corrupt), security_failure(parties, k, t, corrupt, True)
        )

    assert failure(degree, threshold) <= bits < failure(degree, threshold - 1)


def _arcs(order, degree, threshold, corrupt):
    """Arcs that a server opens alone by dropping all but the corrupt beside them: (first, last).

    From the protocol's rule, not from the bound: every honest party of the arc must have t
    neighbours left among the arc and the corrupt.
    """
    m, half = len(order), degree // 2
    bad = np.isin(order, list(corrupt))
    found = []
    for first in range(m):
        for size in range(1, m - degree):
            places = (first + np.arange(size)) % m
            left = bad.copy()
            left[places] = True
            steps = np.r_[-half:0, 1 : half + 1]
            near = left[(places[:, None] + steps) % m].sum(axis=1)
            if (near[~bad[places]] >= threshold).all() and not bad[places].all():
                found.append((first, size))
    return found


def test_placed_colluders_open_an_arc_exactly_where_two_windows_have_enough_of_them():
    m, degree, threshold = 40, 8, 6
    rng = np.random.default_rng(5)
    order = np.arange(m)
    opened = 0
    for _ in range(60):
        corrupt = set(rng.choice(m, 8, replace=False).tolist())
        windows = [sum((p + n) % m in corrupt for n in range(4)) for p in range(m)]
        rich = [p for p in range(m) if windows[p] >= threshold - 4]
        disjoint = any(4 <= (q - p) % m <= m - 4 for p in rich for q in rich)
        arcs = _arcs(order, degree, threshold, corrupt)
        opened += bool(arcs)
        assert disjoint or not arcs
    assert opened > 10  # the attack is real where the parameters are weak


def test_how_often_colluders_at_random_places_open_an_arc_is_below_the_bound():
    m, degree, threshold, corrupt = 60, 12, 11, 12
    rng, trials = np.random.default_rng(6), 20_000
    hits = 0
    for _ in range(trials):
        bad = np.zeros(m)
        bad[rng.choice(m, corrupt, replace=False)] = 1
        rich = np.flatnonzero(np.convolve(np.r_[bad, bad[:5]], np.ones(6), "valid") >= 5)
        gaps = (rich[None, :] - rich[:, None]) % m
        hits += bool(((gaps >= 6) & (gaps <= m - 6)).any())
    bound = arc_failure(m, degree, threshold, corrupt)
    assert hits / trials <= bound + 4 * math.sqrt(bound / trials)
