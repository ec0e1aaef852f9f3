"""A number's map into [−1, 1]: known answers, and that it goes back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.client.data.range_scaling import RangeScale


def test_a_logarithm_has_the_centre_as_its_unit():
    costs = RangeScale(low=100, high=1600, centre=200, transform="log")
    logs = np.log([1, 2, 4, 16])
    known = (logs - np.log(2)) / np.log(8)
    np.testing.assert_allclose(costs.encode(np.array([100.0, 200, 400, 1600])), known)
    assert costs.half == pytest.approx(np.log(8))


@given(
    st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(1e-6, 1 - 1e-6),
    st.lists(st.floats(0, 1), min_size=1), st.sampled_from(["none", "log"]),
)  # fmt: skip
def test_it_rises_within_bounds_and_goes_back(low, width, share, places, transform):
    centre = low + width * share
    if not low < centre < low + width:
        return
    scale = RangeScale(low=low, high=low + width, centre=centre, transform=transform)
    values = np.sort(np.clip(low + width * np.array(places), low, low + width))
    scaled = scale.encode(values)
    assert (np.abs(scaled) <= 1 + 1e-12).all()
    assert (np.diff(scaled) >= -1e-12).all()
    assert scale.encode(np.array([centre]))[0] == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(scale.decode(scaled), values, atol=1e-9 * (abs(low) + width))


@given(st.floats(0.01, 0.5), st.floats(0, 1), st.floats(1e-3, 1e3))
def test_a_logarithm_is_the_same_in_every_unit(share, place, unit):
    def of(width: float) -> float:
        scale = RangeScale(low=width, high=2 * width, centre=width * (1 + share), transform="log")
        return float(scale.encode(np.array([width * (1 + place)]))[0])

    assert of(unit) == pytest.approx(of(1), abs=1e-9)


@pytest.mark.parametrize("centre", [None, 0, 10])
def test_a_logarithm_without_a_unit_is_refused(centre):
    with pytest.raises(ValueError, match="Expected a centre above 0 and below 10 for log"):
        RangeScale(low=0, high=10, centre=centre, transform="log")
    with pytest.raises(ValueError, match="finite and differ after log"):
        RangeScale(low=0, high=1e300, centre=1e-300, transform="log")
