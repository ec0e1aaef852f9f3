"""Differences of noisy means: Welch's without noise, a level that holds with it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_ind

from parley.privacy.estimation.mean_differences import compute_differences
from parley.privacy.estimation.noise_intervals import CellNoise


def of_groups(*groups):
    each = np.array([[len(t), t.sum(), (2 * t * t - 1).sum()] for t in groups])
    return each.T


def test_without_noise_it_is_welch_s_test():
    rng = np.random.default_rng(2)
    first, second = rng.uniform(-1, 0.5, 400), rng.uniform(-0.8, 0.2, 900)
    (found,) = compute_differences(*of_groups(first, second), count_noise=0.0, sum_noise=0.0)
    expected = ttest_ind(first, second, equal_var=False)
    assert found.difference == pytest.approx(first.mean() - second.mean())
    assert found.p == pytest.approx(expected.pvalue, abs=0.003)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-3)


def held(law, scale, claimed, apart=0.0, draws=400):
    """How often p ≤ .05, and how often the interval has the difference in it."""
    rng, noise = np.random.default_rng(4), CellNoise(law=law, scale=scale)
    deviation, rejected, inside = CellNoise(law=law, scale=claimed).deviation, 0, 0
    for _ in range(draws):
        groups = of_groups(rng.choice([-0.8, 0.4], 700), rng.choice([-0.8, 0.4], 400) + apart)
        noisy = groups + noise.draw(rng, groups.shape)
        (found,) = compute_differences(*noisy, count_noise=deviation, sum_noise=deviation)
        rejected += found.p <= 0.05
        inside += found.low <= -apart <= found.high
    return rejected / draws, inside / draws


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 20.0), ("laplace", 14.0)])
def test_it_holds_its_level_and_finds_what_is_there(law, scale):
    # Of 400 under a fixed seed: .05 ± 3 standard deviations.
    rejected, inside = held(law, scale, scale)
    assert 0.017 < rejected < 0.083
    assert inside == pytest.approx(1 - rejected)
    assert held(law, 1.5 * scale, scale)[0] > 0.08
    found, inside = held(law, scale, scale, apart=0.25)
    assert found > 0.5
    assert inside > 0.93


def test_groups_within_their_own_noise_have_no_difference():
    found = compute_differences(
        *np.full((3, 3), [500.0, 20.0, -4.0]), count_noise=10.0, sum_noise=10.0
    )
    assert [np.isnan(each.p) for each in found] == [True] * 3
