"""Shares and areas from noisy histograms: known answers, and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.privacy.estimation.roc_curve import NoisyHistogram

COUNTS = np.stack([np.linspace(900, 20, 20), np.linspace(10, 300, 20)], axis=1).round()
LAWS = {
    # What 95 % of one cell's noise does not exceed, of unit scale; and vectors of it.
    "gaussian": (1.9600, lambda rng, size: rng.normal(size=size)),
    "laplace": (2.9957, lambda rng, size: rng.laplace(size=size)),
}


def area_by_pairs(cells):
    score = np.arange(len(cells))
    wins = (score[:, None] < score) + (score[:, None] == score) / 2
    return float((np.outer(cells[:, 0], cells[:, 1]) * wins).sum() / np.prod(cells.sum(axis=0)))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=9))
def test_without_noise_an_area_is_the_share_of_pairs_in_order_and_a_share_is_its_quotient(rows):
    cells = np.array(rows, dtype=float)
    cells[0, 0] += 1
    found = NoisyHistogram(cells=cells, within=0.0)
    yes = np.indices(cells.shape)[1] == 1
    assert found.compute_area() == pytest.approx([area_by_pairs(cells)] * 3)
    expected = cells[0, 1] / cells[0].sum()
    here = np.indices(cells.shape)[0] == 0
    assert found.compute_share(yes, here) == pytest.approx([expected] * 3)


def held(law, scale, claimed, draws=600):
    """How often the intervals of an area, of a recall and of one cell's share hold."""
    rng, (quantile, noise) = np.random.default_rng(7), LAWS[law]
    place, label = np.indices(COUNTS.shape)
    yes, half, here = label == 1, place >= 10, place == 12
    truth = (area_by_pairs(COUNTS), COUNTS[10:, 1].sum() / COUNTS[:, 1].sum())
    truth += (COUNTS[12, 1] / COUNTS[12].sum(),)
    hits = np.zeros(3)
    for _ in range(draws):
        cells = COUNTS + scale * noise(rng, COUNTS.shape)
        found = NoisyHistogram(cells=cells, within=quantile * claimed)
        estimates = (
            found.compute_area(),
            found.compute_share(half, yes),
            found.compute_share(yes, here),
        )
        hits += [each.low <= true <= each.high for each, true in zip(estimates, truth, strict=True)]
    return hits / draws


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [4.0, 30.0])
def test_intervals_hold_as_often_as_they_say_and_not_where_the_noise_is_half_as_large_again(
    law, scale
):
    # Of 600 draws under a fixed seed: 95 % of them ± 2.8 standard deviations.
    assert (held(law, scale, scale) > 0.925).all()
    assert (held(law, scale, scale)[:2] < 0.985).all()
    assert (held(law, 1.5 * scale, scale)[:2] < 0.90).all()


def test_what_is_lost_in_the_noise_is_said_to_be_anywhere():
    lost = NoisyHistogram(cells=np.array([[3.0, 1.0], [1.0, 2.0]]), within=50.0)
    assert lost.compute_area()[1:] == (0.0, 1.0)
    none = NoisyHistogram(cells=np.array([[-3.0, -1.0], [1.0, -2.0]]), within=50.0)
    assert none.compute_area() is None
    assert none.compute_share(np.ones((2, 2), bool)) is None
