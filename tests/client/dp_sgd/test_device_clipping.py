"""Clipping on the device bounds every row, whatever floats it contains, as numpy's does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parley.client.dp_sgd.device_clipping import sum_clipped_rows
from parley.client.models.contribution_clipping import build_ball, clip_rows

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, width=64)
CLIPS = st.sampled_from([2.0**-40, 0.3, 1.0, 7.0, 2.0**40])


@given(arrays(np.float64, (1, 5), elements=ANY_FLOAT), CLIPS)
def test_what_any_row_adds_is_whole_and_inside_the_ball(row, clip) -> None:
    total, _ = sum_clipped_rows(torch.tensor(row), clip, torch.ones(1, dtype=torch.float64))
    ball, bits = build_ball(5, clip)
    units = [Fraction(value) * Fraction(2) ** bits for value in total.tolist()]
    assert all(value.denominator == 1 for value in units)
    assert sum(value * value for value in units) <= ball.radius.l2_squared


@given(arrays(np.float64, (6, 4), elements=st.floats(-1e3, 1e3)), CLIPS)
def test_the_sum_differs_from_numpys_by_a_unit_per_row_at_most(rows, clip) -> None:
    weights = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    total, norms = sum_clipped_rows(torch.tensor(rows), clip, torch.tensor(weights))
    _, bits = build_ball(4, clip)
    np.testing.assert_allclose(norms, np.linalg.norm(rows, axis=1), rtol=1e-12)
    clip_rows(rows, clip)
    np.testing.assert_allclose(total, weights @ rows, rtol=0, atol=6 * 2.0**-bits)


def test_a_broken_row_leaves_the_others_alone() -> None:
    rows = torch.tensor([[0.6, 0.8], [float("inf"), 0.0], [1e308, 1e308]], dtype=torch.float64)
    expected, _ = sum_clipped_rows(rows[:1].clone(), 1.0, torch.ones(1, dtype=torch.float64))
    total, _ = sum_clipped_rows(rows, 1.0, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))
    assert total.tolist() == expected.tolist()
