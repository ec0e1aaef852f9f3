"""Tests of the fixed-point encoding."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.secure_agg.encoding import EncodingError, FixedPoint, RingTooSmall, get_ring_dtype
from parley.secure_agg.grid_selection import choose_grid


@pytest.mark.parametrize("ring_bits", [16, 32, 64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_encoding_rounds_to_nearest_ties_to_even_and_wraps_negative(ring_bits, dtype):
    grid = FixedPoint(scale_bits=2, ring_bits=ring_bits, bound=100.0)
    values = np.array([[0.125, 0.375, -0.125, -0.375, 1.0, -100.0, 0.3, -0.0]], dtype=dtype)
    encoded = grid.encode(values)
    assert encoded.dtype == get_ring_dtype(ring_bits)
    assert grid.decode(encoded)[0].tolist() == [0, 2, 0, -2, 4, -400, 1, 0]
    assert encoded[0, 5] == 2**ring_bits - 400


@settings(max_examples=60, deadline=None)
@given(
    ring_bits=st.sampled_from([16, 32, 64]),
    scale_bits=st.integers(-3, 12),
    values=st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=40),
)
def test_decoded_values_are_within_half_a_step(ring_bits, scale_bits, values):
    grid = FixedPoint(scale_bits=scale_bits, ring_bits=ring_bits, bound=6.0)
    array = np.array([values])
    decoded = grid.decode(grid.encode(array))
    assert np.array_equal(decoded, np.rint(array * grid.scale).astype(np.int64))
    assert np.abs(grid.to_float(decoded) - array).max() <= 0.5 / grid.scale


@settings(max_examples=60, deadline=None)
@given(
    scale_bits=st.sampled_from([0, 30, 49, 50, 51, 52, 60]),
    values=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=20),
)
def test_64_bits_hold_the_nearest_whole_number_however_fine_the_grid(scale_bits, values):
    grid = FixedPoint(scale_bits=scale_bits, ring_bits=64, bound=1.0)
    edges = [1.0, -1.0, 0.5, -0.5, math.ldexp(3.0, -scale_bits - 1)]
    found = grid.encode(np.array([[each for each in edges + values if abs(each) <= 1]]))[0]
    exact = [round(Fraction(each) * 2**scale_bits) for each in edges + values if abs(each) <= 1]
    assert found.tolist() == [each % 2**64 for each in exact]


def test_a_vector_longer_than_the_working_buffer_is_encoded_like_its_pieces():
    rng = np.random.default_rng(1)
    values = rng.uniform(-1, 1, (3, 70_001))
    for ring_bits in (16, 32, 64):
        grid = FixedPoint(scale_bits=14, ring_bits=ring_bits, bound=1.0)
        expected = np.rint(values * 2.0**14).astype(np.int64)
        assert np.array_equal(grid.decode(grid.encode(values)), expected)
        strided = np.asfortranarray(values)
        assert np.array_equal(grid.decode(grid.encode(strided)), expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.001, -1.001, 1e300])
def test_what_must_not_be_encoded_is_refused_with_its_place_and_without_its_value(bad):
    grid = FixedPoint(scale_bits=20, ring_bits=32, bound=1.0)
    values = np.zeros((3, 5))
    values[2, 4] = bad
    what = "a larger one" if math.isfinite(bad) else "a non-finite one"
    expected = f"|entry| <= 1, got {what} in row 2, coordinate 4 (1 of 15 entries refused)"
    with pytest.raises(EncodingError, match=re.escape(expected)):
        grid.encode(values)


def test_a_value_an_ulp_above_the_bound_passes_and_stays_within_the_capacity():
    grid = FixedPoint(scale_bits=20, ring_bits=32, bound=1.0)
    encoded = grid.encode(np.array([[np.nextafter(1.0, 2.0), -1.0]]))
    assert np.abs(grid.decode(encoded)).max() <= grid.max_integer


@pytest.mark.parametrize(
    "values",
    [np.zeros((2, 2), "i8"), np.zeros((2, 2), "f2"), *map(np.zeros, (4, (0, 4), (1, 2, 3)))],
)
def test_wrong_dtype_or_shape_is_refused(values):
    with pytest.raises(EncodingError, match="Expected"):
        FixedPoint(scale_bits=2, ring_bits=32, bound=1.0).encode(values)


def test_a_ring_too_small_is_refused_with_the_numbers():
    grid = FixedPoint(scale_bits=10, ring_bits=16, bound=1.0)
    grid.check_capacity(31, 991.0)
    with pytest.raises(RingTooSmall, match=re.escape("32 × 1025 + 0 = 32800")):
        grid.check_capacity(32, 0.0)
    with pytest.raises(RingTooSmall):
        FixedPoint(scale_bits=16, ring_bits=16, bound=1.0)
    with pytest.raises(EncodingError, match="uint16, got uint32"):
        grid.decode(np.zeros(3, dtype=np.uint32))


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_must_be_positive_and_finite(bound):
    with pytest.raises(ValueError, match="bound > 0"):
        FixedPoint(scale_bits=2, ring_bits=32, bound=bound)
    with pytest.raises(ValueError, match="bound > 0"):
        choose_grid(bound=bound, parties=2, dimension=1, noise_tail=lambda s: 0.0, sensitivity=None)


@settings(max_examples=80, deadline=None)
@given(
    bound=st.floats(1e-6, 1e6),
    parties=st.integers(1, 5000),
    sigma=st.floats(0.0, 100.0),
    ring_bits=st.sampled_from([16, 32, 64]),
)
def test_fit_takes_the_finest_scale_that_fits(bound, parties, sigma, ring_bits):
    def tail(scale_bits):
        return 8 * (math.ldexp(sigma * bound, scale_bits) + 3)

    grid = choose_grid(
        bound=bound,
        parties=parties,
        dimension=10,
        noise_tail=tail,
        sensitivity=bound,
        ring_bits=ring_bits,
    )
    grid.check_capacity(parties, tail(grid.scale_bits))
    finer = grid.scale_bits + 1
    if finer <= 60 and tail(finer) <= 2.0**43:
        with pytest.raises(RingTooSmall):
            FixedPoint(scale_bits=finer, ring_bits=ring_bits, bound=bound).check_capacity(
                parties, tail(finer)
            )


def test_fit_takes_the_64_bit_ring_where_the_inflation_asks_for_it():
    common = {"parties": 1000, "noise_tail": lambda s: math.ldexp(1e-3, s)}
    # s = 2^20, d = 104, party Δ = .4 (privacy specification, section 3)
    grid = FixedPoint(scale_bits=20, ring_bits=32, bound=1.0)
    assert grid.compute_inflation(0.4, 104) == pytest.approx(2.43e-5, rel=2e-3)
    small = choose_grid(bound=1.0, dimension=104, sensitivity=0.04, **common)
    assert small.ring_bits == 32
    assert small.compute_inflation(0.04, 104) <= 1e-3
    large = choose_grid(bound=1.0, dimension=1_000_000, sensitivity=1e-5, **common)
    assert large.ring_bits == 64
    assert large.compute_inflation(1e-5, 1_000_000) <= 1e-3
    with pytest.raises(RingTooSmall, match="inflation"):
        choose_grid(
            bound=1.0, dimension=10**6, sensitivity=1e-15, parties=10**6, noise_tail=lambda s: 0.0
        )


def test_fine_integers_are_of_a_finer_grid_and_below_2_to_the_62():
    grid = FixedPoint(scale_bits=9, ring_bits=16, bound=2.0)
    values = np.random.default_rng(5).uniform(-2, 2, size=(3, 50_000))
    assert np.array_equal(grid.wrap_to_ring(grid.quantize_fine(values, 0)), grid.encode(values))
    assert np.array_equal(grid.quantize_fine(values, 7), np.rint(values * 2.0**16).astype(np.int64))
    with pytest.raises(EncodingError, match="got a larger one in row 1, coordinate 2"):
        grid.quantize_fine(np.array([[0.0] * 4, [0.0, 0.0, 2.1, 0.0]]), 3)
    with pytest.raises(EncodingError, match="below 2\\^62"):
        grid.quantize_fine(np.zeros((1, 1)), 53)
