"""The graph and its bounds, and what a run's parameters and a party's policy refuse of them."""

import dataclasses
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import (
    GRINDING_BITS,
    SECURITY_BITS,
    build_neighbour_table,
    choose_degree,
)
from parley.secure_agg.protocol_parameters import (
    ProtocolRequirements,
    RunParameters,
    choose_min_survivors,
)
from parley.secure_agg.sparse_graph_bounds import bound_arc_failure, bound_security_failure


@pytest.mark.parametrize(
    ("parties", "expected"),
    [
        (10, (9, 6)),
        (100, (99, 55)),
        (101, (32, 22)),
        (300, (72, 51)),
        (1000, (112, 80)),
        (5000, (136, 97)),
        (10000, (144, 103)),
    ],
)
def test_the_degrees_of_docs_protocol_md_are_what_is_chosen(parties, expected):
    tenth = parties // 10
    assert choose_degree(parties, corrupt=tenth, dropped=tenth) == expected


def test_the_hypergeometric_bound_agrees_with_scipy():
    from scipy.stats import hypergeom

    for degree, threshold in ((46, 26), (20, 9), (96, 70)):
        needed = 2 * threshold - degree
        expected = 1000 * hypergeom.sf(needed - 1, 999, 100, degree) if needed > 0 else 1000
        assert bound_security_failure(1000, degree, threshold, 100) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parties", "degree"), [(2, 1), (3, 2), (10, 4), (10, 9), (101, 20), (1000, 46)]
)
def test_the_graph_is_regular_symmetric_and_without_loops(parties, degree):
    table = build_neighbour_table(parties, degree, b"beacon")
    assert table.shape == (parties, degree)
    adjacent = np.zeros((parties, parties), dtype=bool)
    adjacent[np.arange(parties)[:, None], table] = True
    assert (adjacent.sum(axis=1) == degree).all()
    assert (adjacent == adjacent.T).all()
    assert not adjacent.diagonal().any()
    assert (np.diff(table, axis=1) > 0).all()


def test_the_graph_follows_from_the_beacon_alone():
    first = build_neighbour_table(200, 10, b"one")
    build_neighbour_table.cache_clear()
    assert np.array_equal(first, build_neighbour_table(200, 10, b"one"))
    assert not np.array_equal(first, build_neighbour_table(200, 10, b"two"))


def test_neighbours_are_a_uniform_choice():
    counts = np.zeros(30)
    for n in range(400):
        counts[build_neighbour_table(30, 6, n.to_bytes(4, "big"))[0]] += 1
    assert counts[0] == 0
    expected = 400 * 6 / 29
    assert np.abs(counts[1:] - expected).max() < 6 * math.sqrt(expected)


@pytest.mark.parametrize("parties", [2, 3, 10, 57, 100])
def test_small_runs_are_complete_with_a_secure_threshold(parties):
    corrupt = parties // 10
    degree, threshold = choose_degree(parties, corrupt=corrupt, dropped=0)
    assert degree == parties - 1
    assert bound_security_failure(parties, degree, threshold, corrupt) == 0
    assert 2 * threshold > degree + corrupt
    assert 2 * (threshold - 1) <= degree + corrupt


@pytest.mark.parametrize(
    ("parties", "corrupt", "dropped"), [(10, 8, 3), (10, -1, 0), (10, 0, 10), (1000, 400, 400)]
)
def test_what_no_graph_can_bear_is_refused(parties, corrupt, dropped):
    with pytest.raises(ValueError, match="Expected"):
        choose_degree(parties, corrupt=corrupt, dropped=dropped)


@pytest.mark.parametrize(("parties", "degree"), [(5, 3), (12, 3), (60, 9), (5, 5), (5, -1)])
def test_a_degree_that_is_odd_or_that_no_graph_has_is_refused(parties, degree):
    with pytest.raises(ValueError, match="even below it"):
        build_neighbour_table(parties, degree, b"")


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
    assert bound_arc_failure(parties, degree, threshold, corrupt) == pytest.approx(
        float(exact), rel=1e-9, abs=0
    )


def test_the_old_parameters_of_a_thousand_parties_had_less_than_37_bits_against_chosen_drops():
    assert 36 < -math.log2(bound_arc_failure(1000, 96, 67, 100)) < 37
    assert -math.log2(bound_arc_failure(1000, 112, 80, 100)) > SECURITY_BITS + GRINDING_BITS


@pytest.mark.parametrize("parties", [101, 120, 300, 1000])
def test_the_chosen_threshold_is_the_least_that_the_bounds_allow(parties):
    corrupt = parties // 10
    degree, threshold = choose_degree(parties, corrupt=corrupt, dropped=corrupt)
    bits = 2.0 ** -(SECURITY_BITS + GRINDING_BITS)

    def failure(k, t):
        return max(
            bound_arc_failure(parties, k, t, corrupt),
            bound_security_failure(parties, k, t, corrupt),
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
    bound = bound_arc_failure(m, degree, threshold, corrupt)
    assert hits / trials <= bound + 4 * math.sqrt(bound / trials)


BASE = RunParameters.choose(parties=10, min_survivors=7, run_id=b"r" * 16, corrupt=1)


def test_the_chosen_parameters_are_what_the_bounds_say():
    assert (BASE.degree, BASE.threshold, BASE.min_survivors) == (9, 6, 7)
    assert RunParameters.from_bytes(BASE.to_bytes()) == BASE
    assert "rrrr" not in repr(BASE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_survivors": 5}, "Expected min_survivors from 6 (m = 10, corrupt 1) to m, got 5."),
        ({"min_survivors": 11}, "to m, got 11."),
        ({"min_survivors": 0}, "got 0."),
        ({"corrupt": 10}, "Expected corrupt and dropped from 0 to m - 1 = 9, got 10, 1."),
        ({"ring_bits": 2}, "Expected ring_bits 16, 32 or 64, got 2."),
        ({"run_id": b""}, "got 0, 32 and 32"),
        ({"corrupt": 9}, "Expected a threshold <= 8"),
        ({"dropped": 4}, "Expected a threshold <= 5"),
        ({"rounds": 0}, "Expected rounds from 1 to 2^32 - 2, got 0."),
        ({"beacon": b"b" * 32}, "Expected no commitments and no beacon for a complete graph."),
        ({"parties": 0}, "Expected parties from 1 to 2^20, got 0."),
    ],
)
def test_bad_parameters_are_refused_with_the_numbers(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(BASE, **changes)


@given(data=st.binary(max_size=90))
def test_any_other_bytes_are_refused(data):
    with pytest.raises(RemoteProtocolError):
        RunParameters.from_bytes(data)


def test_weak_parameters_in_an_encoding_are_refused():
    data = bytearray(BASE.to_bytes())
    data[1 + 16 + 64 + 4 + 3] = 5  # the least survivors
    with pytest.raises(RemoteProtocolError, match="min_survivors from 6"):
        RunParameters.from_bytes(bytes(data))


def _policy(**changes):
    identities = tuple(bytes([n]) * 32 for n in range(10))
    return ProtocolRequirements(**{"identities": identities, "min_survivors": 7} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_survivors": 8}, "Expected min_survivors >= 8, got 7."),
        ({"minimum_degree": 10}, "Expected degree >= 10, got 9."),
        ({"corrupt": 2}, "Expected corrupt >= 2, got 1."),
        ({"identities": (b"a" * 32,), "corrupt": 0}, "Expected 1 parties, got 10."),
    ],
)
def test_a_policy_refuses_weaker_parameters(changes, message):
    with pytest.raises(RemoteProtocolError, match=re.escape(message)):
        _policy(**changes).check(BASE)


@pytest.mark.parametrize("place", [-1, -2, -3])
@pytest.mark.parametrize("value", [0, 1, 2, 255])
def test_an_encoding_of_another_protocol_is_refused(place, value):
    data = bytearray(BASE.to_bytes())
    if data[place] == value:
        return
    data[place] = value
    with pytest.raises(RemoteProtocolError, match="double masks, confirmed lists and hybrid keys"):
        RunParameters.from_bytes(bytes(data))


def test_duplicate_identities_are_refused():
    with pytest.raises(ValueError, match=r"Expected 3 different identities, got 2\."):
        _policy(identities=(b"a" * 32, b"b" * 32, b"a" * 32))
    with pytest.raises(ValueError, match="32 bytes"):
        _policy(identities=(b"a",))


@pytest.mark.parametrize(
    ("parties", "corrupt", "wanted", "least"),
    [
        (1, 0, None, 1),
        (2, 0, None, 2),
        (3, 1, None, 3),
        (5, 1, None, 4),
        (100, 10, None, 67),
        (100, 60, None, 81),
        (100, 10, 1, 56),
        (100, 10, 90, 90),
    ],
)
def test_the_least_number_of_survivors_is_two_thirds_and_more_than_half_with_the_colluders(
    parties, corrupt, wanted, least
):
    assert choose_min_survivors(parties, corrupt=corrupt, requested=wanted) == least
