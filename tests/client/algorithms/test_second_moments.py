"""Second moments: exact sums, the norm they keep, and the bound that noise is scaled to."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from parley.client.algorithms.pca_projection import check_components, project_rows
from parley.client.algorithms.second_moments import SecondMoments, UpperTriangle
from parley.client.data.party_block import PartyBlock
from parley.client.models.row_quantization import prepare_rows
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness


def summed(rows, *, neighbouring=Neighbouring.REPLACE_ONE, bound=1e6):
    """One party's contribution, and the algorithm it is of."""
    rows = np.asarray(rows, dtype=np.float64)
    moments = SecondMoments(
        model=UpperTriangle(features=rows.shape[1]), neighbouring=neighbouring, bound=bound
    )
    block = PartyBlock(features=rows, labels=np.zeros(len(rows)), offsets=np.array([0, len(rows)]))
    return moments.local(moments.init(), block, None, Randomness.from_entropy()).values[0], moments


def of_sum(moments):
    return moments.claim().covered_sensitivity


def test_a_triangle_is_no_longer_than_its_matrix_and_gives_it_back() -> None:
    half = np.random.default_rng(0).integers(-99, 99, size=(7, 7))
    matrix = half + half.T
    triangle = UpperTriangle(features=7)
    flat = triangle.extract_triangle(matrix)
    assert flat.shape == (triangle.dimension,) == (28,)
    assert 0.99 < np.linalg.norm(flat / 32) / np.linalg.norm(matrix) <= 1
    assert np.allclose(triangle.rebuild_matrix(flat / 32), matrix, rtol=1e-14)


def test_the_sum_of_the_cut_rows_is_exact() -> None:
    rows = prepare_rows(np.random.default_rng(2).normal(size=(9_000, 3)), intercept=False)
    cut = [[Fraction(math.trunc(x * 2**12), 2**12) for x in row] for row in rows.tolist()]
    values, _ = summed(rows)
    diagonal = [sum(row[i] * row[i] for row in cut) for i in range(3)]
    assert [Fraction(values[at]) for at in (0, 3, 5)] == diagonal
    # In any order: no rounding to depend on it.
    assert np.array_equal(summed(rows[::-1])[0], values)


def test_the_sensitivity_is_reached_and_no_larger_than_needed() -> None:
    first, moments = summed([[1.0, 0.0]])
    second, _ = summed([[0.0, 1.0]])
    apart = np.linalg.norm(first - second)
    assert apart == pytest.approx(math.sqrt(2))
    assert apart <= of_sum(moments) <= math.sqrt(2) * (1 + 1e-15)
    one = summed([[1.0, 0.0]], neighbouring=Neighbouring.ADD_OR_REMOVE_ONE)[1]
    assert of_sum(one) == 1


@pytest.mark.parametrize("bound", [1, 95, 2**13, 2**24, 2**40 - 1])
def test_sums_up_to_the_bound_are_whole_doubles_and_leave_room_in_a_ring(bound) -> None:
    of_bound = SecondMoments(
        model=UpperTriangle(features=3), neighbouring=Neighbouring.REPLACE_ONE, bound=float(bound)
    )
    assert bound * 2**of_bound.grid_bits < 2**51
    assert of_bound.row_bits >= 2


def test_entries_are_clamped_to_the_public_bound() -> None:
    values, _ = summed(np.tile([1.0, 0.0], (50, 1)), bound=10.0)
    assert values.tolist() == [10.0, 0.0, 0.0]


@pytest.mark.parametrize("row", [[np.nan, 0.0], [np.inf, 0.0], [1e308, -1e308], [3.0, 4.0]])
def test_a_row_that_is_not_finite_or_too_long_adds_zero(row) -> None:
    values, _ = summed([[0.5, 0.5], row, [-0.0, 5e-324]])
    assert np.array_equal(values, summed([[0.5, 0.5]])[0])


@pytest.mark.parametrize(("features", "count"), [(2, 1), (31, 5), (60, 60), (784, 60)])
def test_a_row_is_projected_by_itself_also_where_the_server_makes_it_cancel(
    features, count
) -> None:
    rng = np.random.default_rng(3)
    rows = np.repeat(rng.normal(size=(1, features)) / features, 90, axis=0)
    rows[1::3] = rng.normal(size=(30, features))
    components = rng.normal(size=(features, count)) * 300
    components[-1] -= rows[0] @ components / rows[0, -1]  # to the last digits
    whole = project_rows(rows, components)
    np.testing.assert_allclose(whole, rows @ components, atol=2e-5 * np.abs(components).max())
    for size in (1, 4, 63, 89):
        order = rng.permutation(90)[:size]
        assert np.array_equal(project_rows(rows[order], components), whole[order])
    strange = np.repeat(rows[:1], 4, axis=0)
    strange[[1, 2, 3], 0] = np.nan, np.inf, 33
    assert np.array_equal(project_rows(strange, components)[0], whole[0])
    assert not project_rows(strange, components)[1:].any()


@pytest.mark.parametrize(
    "components",
    [
        np.zeros(3),
        np.zeros((3, 0)),
        np.zeros((3, 4)),
        np.zeros((3, 2), dtype=np.float32),
        np.full((3, 2), np.nan),
        np.full((3, 2), -1001.0),
    ],
)
def test_what_cannot_be_components_is_refused(components) -> None:
    with pytest.raises(ValueError, match="Expected"):
        check_components(components)


@pytest.mark.parametrize(("features", "bound"), [(0, 1.0), (3, 0.5), (3, math.inf), (3, math.nan)])
def test_facts_out_of_their_range_are_refused(features, bound) -> None:
    with pytest.raises(ValueError, match="Expected"):
        SecondMoments(
            model=UpperTriangle(features=features),
            neighbouring=Neighbouring.REPLACE_ONE,
            bound=bound,
        )
