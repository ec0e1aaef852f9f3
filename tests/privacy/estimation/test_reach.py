"""Reach of the noise: the specification's numbers, and coverage of what is drawn."""

import math

import numpy as np
import pytest

from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.mechanisms.laplace import Laplace
from parley.privacy.sampling.discrete_noise import discrete_laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import draw_rounded_gaussian


def test_variances_of_the_discrete_laplace_are_the_known_ones():
    found = [CellNoise(law="laplace", scale=b).deviation ** 2 for b in (1, 2, 4, 10)]
    assert found == pytest.approx([1.84135, 7.83540, 31.8339, 199.833], abs=1e-3)


def test_a_histogram_of_replaced_records_costs_the_known_rho_and_its_worst_ratio_is_epsilon():
    cells = Laplace(sensitivity=math.sqrt(2), sensitivity_l1=2.0, epsilon=0.5, dimension=8)
    assert (cells.scale, cells.event().epsilon) == (4.0, 0.5)
    assert cells.event().rho == pytest.approx(0.0625)
    assert (abs(1) + abs(-1)) / cells.scale == 0.5  # one cell moves up by one, another down


@pytest.mark.parametrize("norm", [0.9, 5.0, math.nan])
def test_an_l1_sensitivity_that_no_vector_has_is_refused(norm):
    with pytest.raises(ValueError, match=r"Δ₁|sensitivity_l1"):
        Laplace(sensitivity=1.0, sensitivity_l1=norm, epsilon=1.0, dimension=16)


@pytest.mark.parametrize(
    ("law", "draw"), [("laplace", discrete_laplace), ("gaussian", draw_rounded_gaussian)]
)
@pytest.mark.parametrize("scale", [3.0, 700.0])
def test_intervals_cover_as_often_as_they_say_and_those_of_another_scale_do_not(law, draw, scale):
    z = draw(scale, 40_000, NoiseStream.from_seed(3, law, int(scale))).astype(float)

    def covered(factor):
        reach = CellNoise(law=law, scale=scale * factor)
        return np.mean(np.abs(z) <= reach.compute_half_width(0.95))

    assert 0.945 < covered(1.0) < 0.98
    assert covered(2 / 3) < 0.93
    assert covered(3 / 2) > 0.98
