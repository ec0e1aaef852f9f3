"""Intervals cover what they say; trees and tables agree as least squares would have them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.estimation.count_trees import CountTree, fit_monotone
from parley.privacy.estimation.marginals import TableOverlaps, project_onto_simplex
from parley.privacy.estimation.noise_intervals import (
    build_gaussian_tail,
    build_laplace_tail,
    compute_cell_alpha,
    compute_laplace_half_width,
    compute_ratio_interval,
)
from parley.privacy.sampling.discrete_noise import discrete_laplace
from parley.privacy.sampling.random_stream import NoiseStream


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-6])
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 20.0])
def test_the_half_width_of_laplace_noise_is_the_least_that_its_law_allows(scale, alpha):
    q = math.exp(-1 / scale)

    def outside(k):
        return 2 * math.fsum(q**j * (1 - q) / (1 + q) for j in range(k + 1, k + 1200))

    k = compute_laplace_half_width(scale, alpha)
    assert outside(k) <= alpha * (1 + 1e-9)
    assert k == 0 or outside(k - 1) > alpha


def test_one_half_width_for_sixteen_cells_holds_for_all_of_them_at_once():
    assert compute_laplace_half_width(4.0, compute_cell_alpha(0.05, 16)) == 23
    draws = discrete_laplace(4.0, 16 * 20_000, NoiseStream.from_seed(3)).reshape(-1, 16)
    held = (np.abs(draws) <= 23).all(axis=1).mean()
    assert 0.945 < held < 0.975  # the law is discrete: at least 95 %, not much more
    assert (np.abs(draws) <= compute_laplace_half_width(4.0, 0.05)).all(axis=1).mean() < 0.6


@pytest.mark.parametrize(
    ("tail", "draw"),
    [
        (build_gaussian_tail(30.0, 20.0), lambda rng: rng.normal(0, [30.0, 20.0])),
        (build_laplace_tail(30.0, 20.0), lambda rng: rng.laplace(0, [30.0, 20.0])),
        (build_laplace_tail(30.0, 100.0), lambda rng: rng.laplace(0, [30.0, 100.0])),
    ],
)
def test_a_ratios_interval_covers_it_as_often_as_it_says(tail, draw):
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(1500):
        x, y = draw(rng)
        low, high = compute_ratio_interval(-300.0 + x, 1000.0 + y, tail, 0.05)
        covered += low <= -0.3 <= high
    assert 0.93 <= covered / 1500 <= 0.97


def test_a_ratio_whose_denominator_may_be_nothing_has_no_interval():
    assert np.isnan(compute_ratio_interval(5.0, 30.0, build_gaussian_tail(20.0, 20.0), 0.05)).all()
    assert np.isnan(compute_ratio_interval(5.0, -80.0, build_gaussian_tail(20.0, 20.0), 0.05)).all()
    assert np.isnan(compute_ratio_interval(0.0, 0.0, build_laplace_tail(20.0, 20.0), 0.05)).all()


def test_equal_scales_are_the_limit_of_near_ones():
    exact, near = (
        build_laplace_tail(4.0, 4.0)(1.0, 0.05),
        build_laplace_tail(4.0, 4.0 * (1 + 2e-5))(1.0, 0.05),
    )
    assert near == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(
    ("cells", "branching", "levels"),
    [(128, 2, 7), (16384, 2, 14), (16384, 4, 7), (10, 3, 3), (2, 2, 1)],
)
def test_a_record_lies_in_one_node_of_every_level(cells, branching, levels):
    tree = CountTree(cells=cells, branching=branching)
    assert tree.levels == levels
    rng = np.random.default_rng(1)
    for cell in (0, cells - 1, *rng.integers(0, cells, 5)):
        alone = tree.build(np.bincount([cell], minlength=cells))
        assert alone.sum() == levels
        assert alone.max() == 1
    # replaced: h nodes down, h up, where the two cells share none (Δ₁ = 2h, Δ₂ = √(2h))
    first, last = (tree.build(np.bincount([c], minlength=cells)) for c in (0, cells - 1))
    assert np.abs(first - last).sum() == 2 * levels
    assert np.linalg.norm(first - last) == pytest.approx(math.sqrt(2 * levels))


@settings(max_examples=60, deadline=None)
@given(
    cells=st.integers(2, 40),
    branching=st.integers(2, 7),
    seed=st.integers(0, 1000),
    known=st.booleans(),
)
def test_the_two_passes_are_least_squares(cells, branching, seed, known):
    tree = CountTree(cells=cells, branching=branching)
    noisy = np.random.default_rng(seed).normal(size=tree.nodes) * 10
    design = np.stack([tree.build(row) for row in np.eye(cells, dtype=np.int64)], axis=1).astype(
        float
    )
    if known:
        # All leaves add up to 7: the last is what the others leave.
        free = design[:, :-1] - design[:, -1:]
        rest = np.linalg.lstsq(free, noisy - 7 * design[:, -1], rcond=None)[0]
        best = np.append(rest, 7 - rest.sum())
    else:
        best = np.linalg.lstsq(design, noisy, rcond=None)[0]
    np.testing.assert_allclose(
        tree.estimate_leaves(noisy, total=7.0 if known else None), best, atol=1e-8
    )


def test_a_tree_of_exact_counts_gives_them_back():
    tree = CountTree(cells=1000, branching=4)
    counts = np.random.default_rng(2).integers(0, 50, 1000)
    np.testing.assert_allclose(tree.estimate_leaves(tree.build(counts)), counts, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-30, 30), min_size=1, max_size=9))
def test_pooling_is_the_nearest_that_never_falls(values):
    found = fit_monotone(values)
    assert (np.diff(found) >= -1e-12).all()
    # optimal: the residual is orthogonal to the fit and to no improvement (KKT of the cone)
    residual = np.array(values) - found
    assert residual.sum() == pytest.approx(0, abs=1e-9)
    assert (np.cumsum(residual[::-1])[::-1] <= 1e-9).all()
    assert residual @ found == pytest.approx(0, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9), st.floats(0, 100))
def test_the_projection_is_the_nearest_point_of_the_simplex(values, total):
    found = project_onto_simplex(values, total=total)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, abs=1e-9)
    # (v − x)·(y − x) ≤ 0 for every corner y: nothing in the simplex is nearer
    v = np.array(values)
    for corner in np.eye(len(v)) * total:
        assert (v - found) @ (corner - found) <= 1e-6


SIZES = {"a": 2, "b": 3, "c": 4, "one": 1}


def least_squares(shapes, noisy, cells, total):
    """Tables and variances by a matrix with a row a cell, over all combinations of columns."""
    names = list(SIZES)
    every = list(itertools.product(*map(range, SIZES.values())))
    rows = [
        [all(atom[names.index(c)] == k for c, k in zip(shape, cell, strict=True)) for atom in every]
        for shape in shapes
        for cell in itertools.product(*(range(SIZES[c]) for c in shape))
    ]
    matrix = np.array(rows, dtype=float)
    weights = np.sqrt(np.repeat(cells, [table.size for table in noisy]))
    known = np.concatenate([table.ravel() for table in noisy]) * weights
    whole = matrix * weights[:, None]
    if total is not None:
        whole, known = np.vstack([whole, np.full(len(every), 1e5)]), np.append(known, 1e5 * total)
    inverse = np.linalg.pinv(whole, rcond=1e-12)
    return matrix @ inverse @ known, np.square(matrix @ inverse)[:, : len(matrix)].sum(axis=1)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(sorted(SIZES)), unique=True), min_size=1, max_size=5),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_tables_that_agree_are_those_of_least_squares(shapes, public, seed):
    rng = np.random.default_rng(seed)
    tables = TableOverlaps(shapes=tuple({c: SIZES[c] for c in s} for s in shapes), public=public)
    noisy = [rng.normal(20, 9, [SIZES[c] for c in s]) for s in shapes]
    cells, total = rng.uniform(0.2, 3, len(shapes)), 300.0 if public else None
    expected, variances = least_squares(shapes, noisy, cells, total)
    agreed = tables.make_consistent(noisy, cells, total=total)
    np.testing.assert_allclose(np.concatenate([t.ravel() for t in agreed]), expected, atol=1e-4)
    each = np.repeat(tables.compute_variances(cells), [table.size for table in noisy])
    np.testing.assert_allclose(each, variances, atol=1e-6)
    wanted = rng.uniform(size=len(shapes))
    for k, gain in enumerate(tables.compute_gains(cells, wanted)):
        up, down = (cells * np.exp(h * (np.arange(len(cells)) == k)) for h in (1e-5, -1e-5))
        change = wanted @ (tables.compute_variances(down) - tables.compute_variances(up)) / 2e-5
        assert gain == pytest.approx(change, abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: compute_laplace_half_width(math.nan, 0.05),
        lambda: compute_laplace_half_width(1.0, 1.5),
        lambda: compute_cell_alpha(0.05, 0),
        lambda: CountTree(cells=1, branching=2),
        lambda: CountTree(cells=True, branching=2),
        lambda: CountTree(cells=4, branching=2).build([1, 2]),
        lambda: CountTree(cells=4, branching=2).estimate_leaves([1.0]),
        lambda: project_onto_simplex([], total=1.0),
        lambda: project_onto_simplex([1.0], total=-1.0),
        lambda: TableOverlaps(shapes=({"a": 3}, {"a": 2, "b": 2})).sizes,
        lambda: TableOverlaps(shapes=({"a": 3},)).make_consistent([np.zeros(2)], np.ones(1)),
        lambda: TableOverlaps(shapes=({"a": 3},)).make_consistent([], np.ones(1)),
        lambda: TableOverlaps(shapes=({"a": 3},)).make_consistent(
            [np.zeros(3)], np.ones(1), total=5.0
        ),
        lambda: TableOverlaps(shapes=({"a": 3},), public=True).make_consistent(
            [np.zeros(3)], np.ones(1)
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_expected(wrong):
    with pytest.raises(ValueError, match="Expected"):
        wrong()
