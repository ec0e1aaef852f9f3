"""Gamma variables: floats within their bounds, decided as exact arithmetic decides."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from parley.privacy.sampling import gamma, rounded_gaussian
from parley.privacy.sampling.gamma import GammaDraws, HalfGammaDraws
from parley.privacy.sampling.l2_laplace import add_rounded_mixtures
from parley.privacy.sampling.random_stream import NoiseStream

SHAPES = [
    Fraction(1, 4000), Fraction(1, 40), Fraction(1, 2), Fraction(7, 6), Fraction(3999, 4000),
    Fraction(3), Fraction(101, 2),
]  # fmt: skip


def drawn(shape, count=150, seed=6):
    return GammaDraws(shape, count, NoiseStream.from_seed(seed, str(shape)))


@pytest.mark.parametrize("shape", SHAPES)
def test_one_is_enclosed_by_two_hundred_bits_and_keeps_the_bits_that_it_drew(shape) -> None:
    many = drawn(shape, 3)
    low, high = many.get_draw(1).compute_bounds(63)
    closer_low, closer_high = many.get_draw(1).compute_bounds(260)
    assert low <= closer_low <= closer_high <= high
    assert closer_high - closer_low <= closer_high * 2.0**-200
    assert many.get_draw(1).compute_bounds(260) == (closer_low, closer_high)


def test_a_shape_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected shape > 0"):
        drawn(Fraction(0))


MANY = [drawn(each, 60) for each in SHAPES]
MANY += [HalfGammaDraws(halves, 60, NoiseStream.from_seed(1)) for halves in (1, 8)]


@pytest.mark.parametrize("many", MANY)
def test_floats_are_within_their_bounds_of_what_they_stand_for(many) -> None:
    for row, (value, error) in enumerate(zip(many.values, many.errors, strict=True)):
        low, high = many.get_draw(row).compute_bounds(63)
        assert low - error <= value <= high + error
    there = many.values > 1e-200
    assert np.median((many.errors / many.values)[there]) < 2.0**-30


@pytest.mark.parametrize("shape", SHAPES[:5])
def test_a_trial_is_kept_or_not_as_exact_arithmetic_says(shape, monkeypatch) -> None:
    by_floats = drawn(shape)
    monkeypatch.setattr(gamma, "FLOAT_ERROR", 1e9)  # nothing is decided by floats
    exactly = drawn(shape)
    assert np.array_equal(by_floats.values, exactly.values)


def test_the_words_that_floats_cannot_tell_apart_are_decided_by_the_bits_that_follow() -> None:
    """U² + W² ≤ 1 at U = W = √½, up to 2⁻⁶¹."""
    many, root = drawn(Fraction(1, 2), 1), math.isqrt(1 << 125)
    for above, wanted in ((3, False), (-3, True)):
        words = np.array([[root + above, root + above]], dtype=np.uint64)
        assert many._accept_trials(words, np.array([0])).tolist() == [wanted]


@pytest.mark.parametrize(("scale", "jitter"), [(900.0, 16.0), (2.0, 0.0), (2.0**30, 2.0**20)])
def test_a_vector_is_rounded_as_exact_arithmetic_says(scale, jitter, monkeypatch) -> None:
    def vectors():
        values = np.zeros((6, 3), dtype=np.int64)
        add_rounded_mixtures(values, scale, Fraction(2, 9), jitter, NoiseStream.from_seed(7))
        return values

    by_floats = vectors()
    for each in (gamma, rounded_gaussian):
        monkeypatch.setattr(each, "FLOAT_ERROR", 1e12)
    assert np.array_equal(by_floats, vectors())


@pytest.mark.parametrize("shape", [Fraction(1, 40), Fraction(7, 6)])
def test_many_at_once_have_the_law_and_not_another(shape) -> None:
    values = drawn(shape, 20_000).values
    assert stats.kstest(values, stats.gamma(float(shape)).cdf).pvalue > 1e-6
    assert stats.kstest(values, stats.gamma(float(shape) * 1.1).cdf).pvalue < 1e-9
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 5 / np.sqrt(values.size)


def test_noise_is_added_to_rows_however_they_lie_in_memory() -> None:
    wide = np.zeros((4, 6), dtype=np.int64)
    add_rounded_mixtures(wide[:, ::2], 1000.0, Fraction(2), 1.0, NoiseStream.from_seed(8))
    assert wide[:, ::2].all()
    assert not wide[:, 1::2].any()
