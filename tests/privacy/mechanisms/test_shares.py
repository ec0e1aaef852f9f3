"""Shares of noise: the published bounds, the right scale for each share, the refusals."""

import math

import numpy as np
import pytest

from parley.privacy.mechanisms.shares import (
    discrete_gaussian_share,
    discrete_gaussian_sum_epsilon,
    discrete_gaussian_sum_tau,
    discrete_laplace_share,
    gaussian_share,
    l2_laplace_share,
    skellam_rdp,
)
from parley.privacy.sampling.stream import NoiseStream

SHARES = [gaussian_share, l2_laplace_share, discrete_gaussian_share, discrete_laplace_share]


def test_tau_of_a_hundred_unit_shares_is_the_published_one() -> None:
    assert discrete_gaussian_sum_tau(100, 1.0) == pytest.approx(5.47789e-4, rel=1e-5)


def test_one_share_is_the_discrete_gaussian_itself() -> None:
    assert discrete_gaussian_sum_tau(1, 4.0) == 0
    epsilon = discrete_gaussian_sum_epsilon(
        sensitivity=3.0, survivors=1, variance=9.0, dimension=50
    )
    assert epsilon == pytest.approx(1.0)  # ρ = ε²/2 = Δ²/(2σ²)


def test_from_a_share_variance_of_four_the_sum_costs_nothing_that_shows() -> None:
    whole = 2.0 / math.sqrt(1000 * 4.0)
    epsilon = discrete_gaussian_sum_epsilon(
        sensitivity=2.0, survivors=1000, variance=4.0, dimension=10**6
    )
    tau = discrete_gaussian_sum_tau(1000, 4.0)
    assert whole <= epsilon <= whole + tau * 1000
    assert tau < 1e-14


def test_the_skellam_bound_is_the_gaussian_one_plus_what_it_says() -> None:
    # αΔ²/(2μ) = 2·4/200 and min{(3·4 + 6·2)/40000, 3·2/200} = 6e-4.
    bound = skellam_rdp(2.0, l2_sensitivity=2.0, l1_sensitivity=2.0, variance=100.0)
    assert bound == pytest.approx(0.04 + 6e-4)
    bound = skellam_rdp(2.0, l2_sensitivity=2.0, l1_sensitivity=2.0, variance=1.0)
    assert bound == pytest.approx(4.0 + 3.0)


@pytest.mark.parametrize("share", SHARES)
def test_shares_have_the_size_asked_for_and_repeat_with_their_seed(share) -> None:
    for size in (0, 1, 7):
        one = share(10.0, size, 3, NoiseStream.from_seed(1))
        assert one.shape == (size,)
        np.testing.assert_array_equal(one, share(10.0, size, 3, NoiseStream.from_seed(1)))
    integer = share in (discrete_gaussian_share, discrete_laplace_share)
    assert one.dtype == (np.int64 if integer else np.float64)


@pytest.mark.parametrize("share", SHARES)
def test_shares_of_no_party_or_no_scale_are_refused(share) -> None:
    with pytest.raises(ValueError, match="Expected survivors ≥ 1, got 0"):
        share(10.0, 3, 0, NoiseStream.from_seed(1))
    with pytest.raises(ValueError, match="Expected size ≥ 0, got -1"):
        share(10.0, -1, 1, NoiseStream.from_seed(1))
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"Expected a finite (sigma|scale) > 0"):
            share(scale, 3, 1, NoiseStream.from_seed(1))


def test_discrete_gaussian_shares_of_variance_below_four_are_refused() -> None:
    assert discrete_gaussian_share(20.0, 3, 100, NoiseStream.from_seed(1)).size == 3
    with pytest.raises(ValueError, match=r"Expected a variance per share ≥ 4 .* got 3\.9"):
        discrete_gaussian_share(math.sqrt(3.99 * 100), 3, 100, NoiseStream.from_seed(1))
    with pytest.raises(ValueError, match=r"Expected a variance per share ≥ 4 .* got 1"):
        discrete_gaussian_sum_epsilon(sensitivity=1.0, survivors=100, variance=1.0, dimension=1)


def test_bad_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected alpha > 1, got 1"):
        skellam_rdp(1.0, l2_sensitivity=1.0, l1_sensitivity=1.0, variance=1.0)
    with pytest.raises(ValueError, match="Expected a finite variance > 0, got 0"):
        skellam_rdp(2.0, l2_sensitivity=1.0, l1_sensitivity=1.0, variance=0.0)
    with pytest.raises(ValueError, match="Expected survivors ≥ 1, got 0"):
        discrete_gaussian_sum_tau(0, 4.0)
