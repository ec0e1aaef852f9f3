"""Which rows are kept, and that sums of whole rows are exact, whatever numbers a row holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.kernel.rows import EXACT, keep_factored, keep_within, outer_sum, row_sum

SPECIAL = np.array([np.nan, np.inf, -np.inf, 5e-324, -1e308, 1.8e308, 0.5, 2.0**53, 2.0**60, 0.0])


def exact_square(row: np.ndarray) -> int | None:
    """‖row‖² in whole numbers; None where it is not of whole numbers."""
    if not (np.isfinite(row).all() and (row == np.rint(row)).all()):
        return None
    return sum(int(v) ** 2 for v in row)


def hostile(rng: np.random.Generator, shape: tuple[int, int], most: float) -> np.ndarray:
    rows = np.rint(rng.normal(size=shape) * 10.0 ** rng.uniform(0, np.log10(most), (shape[0], 1)))
    odd = rng.random(shape) < 0.03
    rows[odd] = rng.choice(SPECIAL, odd.sum())
    return rows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 1 << 26))
def test_exactly_the_short_rows_are_kept(seed: int, width: int, radius: int) -> None:
    """As whole numbers of any size decide, at the border too."""
    rng = np.random.default_rng(seed)
    rows = hostile(rng, (30, width), 3 * radius)
    squares = [exact_square(row) for row in rows]
    border = [s for s in squares if s is not None and 0 < s < EXACT]
    for squared in {radius**2, *(s + d for s in border[:3] for d in (-1, 0, 1))} - {EXACT}:
        kept = rows.copy()
        dropped = keep_within(kept, squared)
        fits = np.array([s is not None and s <= squared for s in squares])
        assert dropped == (~fits).sum()
        assert (kept[fits] == rows[fits]).all()
        assert not kept[~fits].any()
    length = max(1, radius)
    keep_within(rows, radius**2)
    assert row_sum(rows, length).tolist() == [sum(int(v) for v in column) for column in rows.T]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_factored_records_are_never_longer_than_they_may_be(seed: int) -> None:
    """‖a bᵀ‖² of all layers together, in whole numbers; what is far below is kept."""
    rng = np.random.default_rng(seed)
    layers = [
        (hostile(rng, (20, 7), 1e9), hostile(rng, (20, 5), 1e6)),
        (hostile(rng, (20, 3), 1e4), hostile(rng, (20, 4), 1e9)),
    ]
    before = [list(zip(map(exact_square, a), map(exact_square, b), strict=True)) for a, b in layers]
    squared = int(10.0 ** rng.uniform(4, 30))
    with np.errstate(all="ignore"):
        kept = keep_factored(layers, squared)
    for record in np.flatnonzero(kept):
        total = 0
        for of_input, of_slope in (layer[record] for layer in before):
            assert of_input is not None
            assert of_slope is not None
            total += of_input * of_slope
        assert total <= squared
    for inputs, slopes in layers:
        assert not inputs[~kept].any()
        assert not slopes[~kept].any()


def test_records_well_inside_are_kept() -> None:
    """Both layers' squares add up: 2·(25·4) of 200, but not of 199."""
    layers = [(np.array([[3.0, 4.0]]), np.array([[2.0]])) for _ in range(2)]
    assert keep_factored([(a.copy(), b.copy()) for a, b in layers], 201).all()
    assert not keep_factored([(a.copy(), b.copy()) for a, b in layers], 199).any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_sums_are_the_same_whole_numbers_in_any_order_and_split(seed: int) -> None:
    """Of rows whose sum needs more than 53 bits, too."""
    rng = np.random.default_rng(seed)
    rows = np.rint(rng.uniform(-1, 1, (600, 4)) * 2.0**24)
    slopes = np.rint(rng.uniform(-1, 1, (600, 2)) * 2.0**25)
    length = 2**25 * 2**25 * 4
    whole = outer_sum(slopes, rows, length)
    exact = [[sum(int(s) * int(x) for s, x in zip(slopes[:, k], rows[:, j], strict=True))
              for j in range(4)] for k in range(2)]  # fmt: skip
    assert whole.tolist() == exact
    order = rng.permutation(600)
    cut = int(rng.integers(0, 601))
    parts = [outer_sum(slopes[p], rows[p], length) for p in (order[:cut], order[cut:])]
    assert (parts[0] + parts[1] == whole).all()


def test_sums_that_do_not_fit_are_refused() -> None:
    """Rather than wrapped around."""
    with pytest.raises(ValueError, match="2\\^63"):
        row_sum(np.ones((2048, 1)), 2**52)
    with pytest.raises(ValueError, match="2\\^53"):
        keep_within(np.ones((1, 1)), EXACT)
