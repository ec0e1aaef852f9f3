"""A step with a count of clipped gradients costs what a step without one does, and no less."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.privacy.accounting.clipped_fraction_noise import (
    compute_count_deviation,
    compute_gradient_multiplier,
)
from parley.privacy.mechanisms.subsampled_gaussian import PartySteps
from parley.privacy.sampling.rounded_gaussian import compute_rounded_distance

SIGMA = st.floats(0.01, 1e4)
SHARE = st.floats(1e-9, 1 - 1e-9)


@given(sigma=SIGMA, share=SHARE, steps=st.integers(1, 10**6))
def test_both_noises_together_are_at_least_the_one_that_is_charged(sigma, share, steps) -> None:
    of_sums = Fraction(compute_gradient_multiplier(sigma, share))
    # 2σ_b of one step: the total's noise is √T times that, rounded up once.
    of_count = Fraction(compute_count_deviation(sigma, share, steps)) ** 2 / steps
    together = 1 / of_sums**2 + 1 / of_count
    charged = min(1 / Fraction(sigma) ** 2, 1 / Fraction(repr(sigma)) ** 2)
    assert (1 - Fraction(1, 10**12)) * charged <= together <= charged


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_no_record_moves_the_pair_by_more_than_the_charged_multiplier_says(share) -> None:
    """Every record as the vector (g/σ_g, (b − ½)/σ_b), C = 1, among all that clipping allows."""
    sigma, rng = 3.0, np.random.default_rng(2)
    gradients = rng.standard_normal((4000, 5))
    gradients *= rng.random((4000, 1)) ** 0.1 / np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients[:2000] /= np.linalg.norm(gradients[:2000], axis=1, keepdims=True)
    clipped = np.concatenate([np.ones(2000), rng.random(2000)])
    of_count = compute_count_deviation(sigma, share, 1) / 2
    records = np.column_stack(
        [gradients / compute_gradient_multiplier(sigma, share), (clipped - 0.5) / of_count]
    )
    one = np.linalg.norm(records, axis=1)
    assert one.max() <= 1 / sigma * (1 + 1e-12)
    assert one.max() > 1 / sigma * (1 - 1e-12)  # a clipped gradient uses all of it
    replaced = np.linalg.norm(records - rng.permutation(records), axis=1)
    assert replaced.max() <= 2 / sigma * (1 + 1e-12)


def test_steps_with_a_count_are_charged_as_steps_without_and_add_more_noise() -> None:
    plain = PartySteps(
        sensitivity=2.0,
        dimension=101,
        clip_norm=1.0,
        noise_multiplier=4.0,
        sampling_rate=0.05,
        steps=50,
        neighbouring="replace-one",
    )
    counted = replace(plain, clipped_share=0.75)
    assert counted.event() == plain.event()
    # One draw a coordinate and step, and one of the count a release.
    assert float(counted.event().sampler_distance) >= compute_rounded_distance(100 * 50 + 1)
    assert counted.scale == pytest.approx(2 * plain.scale)
    assert counted.expected_norm() == pytest.approx(10 * counted.scale)
    assert "the number of clipped gradients" in counted.describe()
    assert plain.scale == 4.0
    assert compute_gradient_multiplier(4.0, 0.0) == 4.0


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_share_out_of_its_range_is_refused(share) -> None:
    with pytest.raises(ValueError, match="share"):
        compute_gradient_multiplier(1.0, share)
    with pytest.raises(ValueError, match="share"):
        compute_count_deviation(1.0, share, 3)


def test_a_count_without_a_share_or_a_sum_is_refused() -> None:
    with pytest.raises(ValueError, match="share > 0"):
        compute_count_deviation(1.0, 0.0, 3)
    with pytest.raises(ValueError, match="in addition to the clipped fraction"):
        PartySteps(
            sensitivity=1.0,
            dimension=1,
            clip_norm=1.0,
            noise_multiplier=4.0,
            sampling_rate=0.05,
            steps=50,
            neighbouring="add-or-remove-one",
            clipped_share=0.1,
        )
