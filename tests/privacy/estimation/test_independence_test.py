"""The test of independence: it holds its level under the noise, and finds what is there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from parley.privacy.estimation.independence_test import MAX_CELLS, run_independence_test
from parley.privacy.estimation.noise_intervals import CellNoise

ROWS, COLUMNS = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4])
APART = np.array([[0.06, -0.06], [-0.03, 0.03], [-0.03, 0.03]])


def rejected(shares, *, law, scale, claimed, tables=200):
    """How often p ≤ .05, of noisy tables of 2,000 records each."""
    rng, found = np.random.default_rng(5), 0
    noise = CellNoise(law=law, scale=scale)
    for _ in range(tables):
        drawn = rng.multinomial(2000, shares.ravel()).reshape(shares.shape)
        noisy = drawn + noise.draw(rng, shares.shape)
        found += run_independence_test(noisy, CellNoise(law=law, scale=claimed), draws=99).p <= 0.05
    return found / tables


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 30.0), ("laplace", 21.0)])
def test_independent_columns_are_told_apart_as_often_as_the_level_says(law, scale):
    alone = np.outer(ROWS, COLUMNS)
    # Of 200 under a fixed seed: .05 ± 3 standard deviations.
    assert 0.003 < rejected(alone, law=law, scale=scale, claimed=scale) < 0.097
    assert rejected(alone, law=law, scale=1.5 * scale, claimed=scale) > 0.1
    assert rejected(alone + APART, law=law, scale=scale, claimed=scale) > 0.95


def test_without_noise_it_is_pearson_s_test():
    table = np.array([[40.0, 30.0, 10.0], [20.0, 25.0, 15.0]])
    expected = chi2_contingency(table, correction=False)
    found = run_independence_test(table, CellNoise(law="gaussian", scale=1.0), unit=1e6)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue, abs=0.02)  # 1,999 draws: ± 3 deviations


def test_a_table_without_records_tells_nothing_and_one_too_small_or_large_is_refused():
    noise = CellNoise(law="laplace", scale=50.0)
    assert run_independence_test(np.full((2, 2), -3.0), noise).p == 1
    for shape in ((1, 4), (4,), (MAX_CELLS, 2)):
        with pytest.raises(ValueError, match="Expected a table of 2 × 2"):
            run_independence_test(np.ones(shape), noise)
