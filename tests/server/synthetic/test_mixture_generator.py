"""Noisy tables → a mixture → rows: known answers, a known mixture found again, strict reading."""

import numpy as np
import pytest

from parley.server.synthetic.mixture_generator import Mixture, ReleasedTables, fit


def test_a_known_table_of_two_components():
    shares = np.array([[0.9, 0.1, 0.2, 0.8], [0.3, 0.7, 0.6, 0.4]], np.float32)
    table = Mixture(sizes=(2, 2), shares=shares).compute_table(0, 1)
    np.testing.assert_allclose(table, [[0.18, 0.42], [0.22, 0.18]], atol=1e-7)


def tables_of(known, total):
    pairs = tuple((i, j) for j in range(len(known.sizes)) for i in range(j))
    cells = [known.compute_table(i, j).ravel() * total for i, j in pairs]
    return ReleasedTables(sizes=known.sizes, pairs=pairs, values=np.concatenate(cells))


def test_without_noise_a_known_mixture_is_found_again():
    rng = np.random.default_rng(4)
    sizes = (6, 3, 9, 2, 5)
    shares = [rng.dirichlet(np.full(size, 0.3), 7) for size in sizes]
    known = Mixture(sizes=sizes, shares=np.concatenate(shares, axis=1).astype(np.float32))
    tables = tables_of(known, total=12_345)
    found = fit(tables, components=100, steps=400, seed=1)
    assert tables.total == pytest.approx(12_345)
    apart = [
        np.abs(known.compute_table(i, j) - found.compute_table(i, j)).sum() / 2
        for i, j in tables.pairs
    ]
    assert np.mean(apart) < 0.01
    rows = found.sample(100_000, np.random.default_rng(0))
    drawn = np.zeros((sizes[0], sizes[2]))
    np.add.at(drawn, (rows[:, 0], rows[:, 2]), 1e-5)
    assert np.abs(drawn - known.compute_table(0, 2)).sum() / 2 < 0.02
    again = fit(tables, components=100, steps=400, seed=1)
    np.testing.assert_array_equal(found.shares, again.shares)


def test_the_number_of_records_weighs_every_table_by_its_noise():
    rng = np.random.default_rng(0)
    sizes, pairs = (2, 3, 20), ((0, 1), (0, 2), (1, 2))
    cells = sum(sizes[i] * sizes[j] for i, j in pairs)
    found = np.array(
        [
            ReleasedTables(sizes=sizes, pairs=pairs, values=rng.normal(0, 1, cells)).total
            for _ in range(4000)
        ]
    )
    least = 1 / (1 / 6 + 1 / 40 + 1 / 60)  # of inverse-variance weights
    assert found.var() == pytest.approx(least, rel=0.1)
    assert found.var() < 0.8 * (6 + 40 + 60) / 9  # of equal ones


def test_a_release_of_no_records_is_refused():
    tables = ReleasedTables(sizes=(2, 2), pairs=((0, 1),), values=np.array([-5.0, 1, 1, 1]))
    with pytest.raises(ValueError, match="positive number of records, got -2"):
        fit(tables, components=3, steps=1, seed=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_release_whose_fit_is_not_finite_makes_no_generator():
    values = np.array([1e30, -1e30, 1e-9, 1e-9])  # a total of next to nothing
    tables = ReleasedTables(sizes=(2, 2), pairs=((0, 1),), values=values)
    with pytest.raises(ValueError, match="finite generator"):
        fit(tables, components=3, steps=5, seed=0)


def test_a_column_in_no_table_is_uniform():
    tables = ReleasedTables(sizes=(2, 2, 4), pairs=((0, 1),), values=np.array([5.0, 1, 1, 1]))
    found = fit(tables, components=50, steps=5, seed=0)
    np.testing.assert_allclose(tables.compute_margin(2, total=8.0), np.full(4, 0.25))
    assert found.compute_table(0, 2).shape == (2, 4)


@pytest.mark.parametrize(
    "shares",
    [
        None,
        np.ones((1, 4)),
        np.ones((0, 4), np.float32),
        np.full((2, 3), 0.5, np.float32),
        np.full((2, 4), np.nan, np.float32),
        np.array([[1.5, -0.5, 0.5, 0.5]], np.float32),
        np.array([[0.5, 0.5, 0.5, 0.6]], np.float32),
    ],
)
def test_shares_of_a_file_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="Expected"):
        Mixture.from_shares((2, 2), shares)
