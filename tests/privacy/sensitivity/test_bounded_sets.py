"""Radius and diameter of the sets against all of their vectors; sums of whole rows are exact."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sensitivity.bounded_sets import NormBounds, Set, compute_sensitivity
from parley.privacy.sensitivity.exact_row_arithmetic import (
    EXACT,
    compute_squares,
    keep_factored,
    keep_within,
    round_slopes,
    sum_outer,
    sum_rows,
)
from parley.privacy.sensitivity.fine_row_arithmetic import (
    FINE,
    keep_in_cube,
    keep_surely_within,
    sum_fine_outer,
)

Vector = tuple[int, ...]
Listed = tuple[Set, list[Vector]]
"""A small set, and every vector of it."""


def interval(low: int, span: int) -> Listed:
    return Set.interval(low, low + span), [(each,) for each in range(low, low + span + 1)]


def ball(dimension: int, squared: int) -> Listed:
    of = Set.ball(dimension, squared=squared)
    every = itertools.product(range(-of.largest, of.largest + 1), repeat=dimension)
    return of, [each for each in every if sum(v * v for v in each) <= squared]


def l1_ball(most: int) -> Listed:
    every = itertools.product(range(-most, most + 1), repeat=2)
    return Set.l1_ball(most), [each for each in every if sum(map(abs, each)) <= most]


def parabola(scale: int) -> Listed:
    along = np.linspace(-1, 1, 40 * scale + 1)
    both = np.rint(np.stack([scale * along, scale * (2 * along * along - 1)], axis=1))
    return Set.parabola(scale), list(dict.fromkeys(map(tuple, both.astype(int).tolist())))


def triangle(numbers: int, categories: tuple[int, ...], most: int) -> Listed:
    """Rows, entry by entry as the docstring has them."""
    indicated = [
        [tuple(most * (at == k) for at in range(size)) for k in range(-1, size)]
        for size in categories
    ]
    column = np.repeat(range(1 + numbers + len(categories)), [1] * (1 + numbers) + [*categories])
    found: list[Vector] = []
    for row in itertools.product(range(-most, most + 1), repeat=numbers):
        for chosen in itertools.product(*indicated):
            z = (most, *row, *itertools.chain(*chosen))
            found.append(
                tuple(
                    z[i] * z[j] * (32 if i == j else 55 if i == 0 and column[j] > numbers else 45)
                    for i in range(len(z))
                    for j in range(i, len(z))
                    if column[i] <= numbers or column[i] != column[j]
                )
            )
    return Set.triangle(numbers, categories, unit=most**2), [*found, (0,) * len(found[0])]


def in_one_of(cells: int, within: Listed) -> Listed:
    of, inner = within
    zeros = (0,) * len(inner[0])
    every = (
        tuple(itertools.chain(*(vector if at == cell else zeros for at in range(cells))))
        for cell, vector in itertools.product(range(cells), inner)
    )
    return of.spread_over_cells(cells), list(dict.fromkeys(every))


def or_nothing(within: Listed) -> Listed:
    of, inner = within
    return of.add_zero(), list(dict.fromkeys([*inner, (0,) * len(inner[0])]))


def acute(within: Listed) -> Listed:
    of, inner = within
    return of.restrict_to_acute(), [each for each in inner if min(each) >= 0]


def product(*parts: Listed) -> Listed:
    every = itertools.product(*(inner for _, inner in parts))
    return Set.product(*(of for of, _ in parts)), [tuple(itertools.chain(*each)) for each in every]


balls = st.one_of(
    st.builds(ball, st.just(2), st.integers(0, 9)), st.builds(l1_ball, st.integers(0, 3))
)
simple = st.one_of(
    balls,
    st.builds(interval, st.integers(-4, 4), st.integers(0, 4)),
    st.builds(ball, st.just(1), st.integers(0, 9)),
    st.builds(parabola, st.integers(1, 12)),
)
celled = st.one_of(simple, st.builds(in_one_of, st.integers(1, 3), simple))
optional = st.one_of(celled, st.builds(or_nothing, celled))
every_set = st.one_of(
    optional,
    st.builds(acute, balls),
    st.builds(product, optional, simple),
    st.builds(in_one_of, st.just(2), optional),
)


def longest(rows: np.ndarray) -> tuple[int, int]:
    return int(np.abs(rows).sum(axis=1).max()), int(np.square(rows).sum(axis=1).max())


@settings(max_examples=150, deadline=None)
@given(every_set)
def test_lengths_hold_for_all_vectors_and_are_not_loose(listed: Listed) -> None:
    """Nothing is longer; and by their own coordinates nothing is claimed twice over."""
    of, many = listed
    rows = np.array(many)
    assert np.abs(rows).max() <= of.largest
    apart = np.max([longest(rows - each) for each in rows[:400]], axis=0)
    for (l1, l2_squared), claimed in ((longest(rows), of.radius), (apart, of.diameter)):
        assert l1 <= claimed.l1 <= max(2 * l1, 1)
        assert l2_squared <= claimed.l2_squared <= max(4 * l2_squared, 1)
    assert compute_sensitivity(of, Neighbouring.REPLACE_ONE) == of.diameter
    assert compute_sensitivity(of, Neighbouring.ADD_OR_REMOVE_ONE, records=3) == of.radius.multiply(
        3
    )


@pytest.mark.parametrize(
    ("numbers", "categories", "most"),
    [(1, (), 4), (2, (), 3), (3, (), 2), (1, (1,), 3), (2, (3,), 1), (0, (2,), 1), (1, (1, 2), 1)],
)
def test_triangles_are_no_further_apart_than_their_set_says(
    numbers: int, categories: tuple[int, ...], most: int
) -> None:
    """Every two rows of such numbers; and the bounds are near what some two come to."""
    of, many = triangle(numbers, categories, most)
    rows = np.array(many)
    apart = (rows[:, None] - rows).reshape(-1, rows.shape[1])
    assert np.abs(rows).max() == of.largest
    for vectors, claimed in ((rows, of.radius), (apart, of.diameter)):
        l1, l2 = np.abs(vectors).sum(axis=1).max(), np.square(vectors).sum(axis=1).max()
        assert l1 <= claimed.l1 <= 1.7 * l1
        assert l2 <= claimed.l2_squared <= 1.7 * l2


@pytest.mark.parametrize(
    ("of", "radius", "diameter"),
    [
        (Set.interval(-2, 5), (5, 25), (7, 49)),
        (Set.interval(3, 3), (3, 9), (0, 0)),
        (Set.ball(9, squared=25), (15, 25), (30, 100)),
        (Set.l1_ball(4), (4, 16), (8, 64)),
        (Set.interval(1, 1).spread_over_cells(2), (1, 1), (2, 2)),
        (Set.interval(1, 1).spread_over_cells(1), (1, 1), (0, 0)),
        (Set.interval(-3, 3).spread_over_cells(2), (3, 9), (6, 36)),
        (Set.interval(1, 1).spread_over_cells(1).add_zero(), (1, 1), (1, 1)),
        (Set.product(Set.interval(0, 1), Set.interval(0, 2)), (3, 5), (3, 5)),
        (Set.l1_ball(4).restrict_to_acute(), (4, 16), (8, 32)),
        (Set.ball(2, squared=25).restrict_to_acute(), (7, 25), (14, 50)),
        (Set.triangle(3, unit=4), (4 * 398, 512**2), (4 * 398, 2 * 512**2)),
        (Set.triangle(1, (1, 2), unit=1), (354, 128**2), (610, 2 * 128**2)),
        (Set.parabola(4096), (8192, 2 * 4096**2), (12802, 86338459)),
    ],
)
def test_known_answers(of: Set, radius: tuple[int, int], diameter: tuple[int, int]) -> None:
    """By hand; the cell of numbers of both signs is moved by its whole range."""
    assert of.radius == NormBounds(*radius)
    assert of.diameter == NormBounds(*diameter)


def test_lengths_in_a_unit_are_rounded_up() -> None:
    """√2 and 3 halves."""
    assert NormBounds(2, 2).compute_l2() ** 2 >= 2
    assert NormBounds(3, 9).compute_l2(0.5) == 1.5


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
    assert sum_rows(rows, length).tolist() == [sum(int(v) for v in column) for column in rows.T]


def test_a_rounded_sum_of_squares_below_the_exact_numbers_is_exact_of_every_small_float() -> None:
    """What `squares` rests on, in all triples of a float of 11 bits; not so at 2¹¹ itself."""
    exact = np.arange(128, dtype=np.int64) ** 2
    rounded = exact.astype(np.float16)
    total = (rounded[:, None] + rounded)[..., None] + rounded
    whole = (exact[:, None] + exact)[..., None] + exact
    below = total < 2**11
    assert (below == (whole < 2**11)).all()
    assert (total[below] == whole[below]).all()
    assert (whole[total == 2**11] > 2**11).any()


@pytest.mark.heavy
def test_exactly_the_short_of_a_hundred_thousand_rows_are_kept() -> None:
    rng = np.random.default_rng(0)
    for seed in range(3400):
        width, radius = int(rng.integers(1, 50)), int(2.0 ** rng.uniform(0, 26))
        test_exactly_the_short_rows_are_kept.hypothesis.inner_test(seed, width, radius)  # type: ignore[attr-defined]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_factored_records_are_never_longer_than_they_may_be(seed: int) -> None:
    """‖a bᵀ‖² of all layers together, in whole numbers; what is far below is kept."""
    rng = np.random.default_rng(seed)
    layers = [
        (hostile(rng, (20, 7), 1e9), hostile(rng, (20, 5), 1e6)),
        (hostile(rng, (20, 3), 1e4), hostile(rng, (20, 4), 1e9)),
    ]
    rounded = [(np.rint(a), np.rint(b)) for a, b in layers]
    before = [
        list(zip(map(exact_square, a), map(exact_square, b), strict=True)) for a, b in rounded
    ]
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


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_slopes_are_kept_by_their_own_and_their_row_s_length(seed: int, width: int) -> None:
    """‖s‖²·‖x‖² in whole numbers, whatever stands in them; what is far below is kept."""
    rng = np.random.default_rng(seed)
    rows, slopes = hostile(rng, (30, 7), 1e5), hostile(rng, (30, width), 1e9)
    with np.errstate(all="ignore"):
        lengths = compute_squares(rows)
    squared = 10.0 ** rng.uniform(2, 30, (30, 1)[: rng.integers(1, 2)])
    kept = round_slopes(slopes, lengths, squared)
    for row, before, after, most in zip(rows, np.rint(slopes), kept, squared, strict=True):
        of_row, of_slope = exact_square(row), exact_square(before)
        product = None if of_row is None or of_slope is None else of_row * of_slope
        if after.any():
            assert (after == before).all()
            assert product is not None
            assert product <= int(most)
        elif product is not None:
            assert product == 0 or 1000 * product > 999 * int(most)


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
    whole = sum_outer(slopes, rows, length)
    exact = [[sum(int(s) * int(x) for s, x in zip(slopes[:, k], rows[:, j], strict=True))
              for j in range(4)] for k in range(2)]  # fmt: skip
    assert whole.tolist() == exact
    order = rng.permutation(600)
    cut = int(rng.integers(0, 601))
    parts = [sum_outer(slopes[p], rows[p], length) for p in (order[:cut], order[cut:])]
    assert (parts[0] + parts[1] == whole).all()


@pytest.mark.parametrize("of", [Set.ball(2, squared=25), Set.parabola(3), Set.triangle(1, unit=2)])
def test_sums_of_vectors_that_are_rounded_once_stay_within_the_rounded_set(of: Set) -> None:
    """A vector of L1 and L2 as long as they go, to which rounding adds 1 in each coordinate."""
    more = of.add_rounding(3)
    for before, after in ((of.radius, more.radius), (of.diameter, more.diameter)):
        assert after.l1 == before.l1 + 3
        wanted = (math.sqrt(before.l2_squared) + math.sqrt(3)) ** 2
        assert wanted <= after.l2_squared <= wanted + 2
    assert more.largest == of.largest


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_fine_products_are_exact_and_what_is_outside_adds_nothing(seed: int) -> None:
    """Of entries up to 2³⁶, whose products doubles do not hold."""
    rng = np.random.default_rng(seed)
    rows = np.rint(rng.uniform(-1, 1, (50, 3)) * 2.0**36)
    rows[0], rows[1], rows[2] = 2.0**36, -(2.0**36), [0.0, 1.0, 2.0**36 - 1]
    rows[3:6] = [[2.0**36 + 1, 0, 0], [np.nan, 0, 0], [0.5, 0, 0]]
    assert keep_in_cube(rows, FINE) == 3
    exact = [[sum(int(x) * int(y) for x, y in zip(rows[:, i], rows[:, j], strict=True))
              for j in range(3)] for i in range(3)]  # fmt: skip
    assert sum_fine_outer(rows).tolist() == exact


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 300))
def test_rows_beyond_the_exact_doubles_are_never_longer_than_they_may_be(
    seed: int, width: int
) -> None:
    """In whole numbers; what is shorter by a millionth is kept."""
    rng = np.random.default_rng(seed)
    rows = hostile(rng, (30, width), 2.0**40)
    before = [exact_square(row) for row in rows]
    squared = float(2.0 ** rng.uniform(4, 90))
    keep_surely_within(rows, squared)
    for row, square in zip(rows, before, strict=True):
        if row.any():
            assert square is not None
            assert square <= squared
        elif square is not None:
            assert square == 0 or square > squared * (1 - 1e-6)


def test_sums_that_do_not_fit_are_refused() -> None:
    """Rather than wrapped around."""
    with pytest.raises(ValueError, match="2\\^63"):
        sum_rows(np.ones((2048, 1)), 2**52)
    with pytest.raises(ValueError, match="2\\^53"):
        keep_within(np.ones((1, 1)), EXACT)
