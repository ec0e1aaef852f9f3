"""Radius and diameter of the sets, against all of their vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.kernel.sets import Lengths, Set, moved_by

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
    return Set.triangle(numbers, categories, most=most), [*found, (0,) * len(found[0])]


def in_one_of(cells: int, within: Listed) -> Listed:
    of, inner = within
    zeros = (0,) * len(inner[0])
    every = (
        tuple(itertools.chain(*(vector if at == cell else zeros for at in range(cells))))
        for cell, vector in itertools.product(range(cells), inner)
    )
    return of.in_one_of(cells), list(dict.fromkeys(every))


def or_nothing(within: Listed) -> Listed:
    of, inner = within
    return of.or_nothing(), list(dict.fromkeys([*inner, (0,) * len(inner[0])]))


def acute(within: Listed) -> Listed:
    of, inner = within
    return of.acute(), [each for each in inner if min(each) >= 0]


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


def longest(many: list[Vector]) -> Lengths:
    return Lengths(
        max(sum(map(abs, each)) for each in many), max(sum(v * v for v in each) for each in many)
    )


@settings(max_examples=150, deadline=None)
@given(every_set)
def test_lengths_hold_for_all_vectors_and_are_not_loose(listed: Listed) -> None:
    """Nothing is longer; and by their own coordinates nothing is claimed twice over."""
    of, many = listed
    assert max(abs(v) for each in many for v in each) <= of.largest
    found = longest(many)
    apart = longest(
        [tuple(a - b for a, b in zip(u, v, strict=True)) for u in many[:400] for v in many]
    )
    for real, claimed in ((found, of.radius), (apart, of.diameter)):
        assert real.l1 <= claimed.l1 <= max(2 * real.l1, 1)
        assert real.l2_squared <= claimed.l2_squared <= max(4 * real.l2_squared, 1)
    assert moved_by(of, Neighbouring.REPLACE_ONE) == of.diameter
    assert moved_by(of, Neighbouring.ADD_OR_REMOVE_ONE, records=3) == of.radius.times(3)


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
        (Set.interval(1, 1).in_one_of(2), (1, 1), (2, 2)),
        (Set.interval(1, 1).in_one_of(1), (1, 1), (0, 0)),
        (Set.interval(-3, 3).in_one_of(2), (3, 9), (6, 36)),
        (Set.interval(1, 1).in_one_of(1).or_nothing(), (1, 1), (1, 1)),
        (Set.product(Set.interval(0, 1), Set.interval(0, 2)), (3, 5), (3, 5)),
        (Set.l1_ball(4).acute(), (4, 16), (8, 32)),
        (Set.ball(2, squared=25).acute(), (7, 25), (14, 50)),
        (Set.triangle(3, most=2), (4 * 398, 512**2), (4 * 398, 2 * 512**2)),
        (Set.triangle(1, (1, 2), most=1), (354, 128**2), (610, 2 * 128**2)),
        (Set.parabola(4096), (8192, 2 * 4096**2), (12802, 86338459)),
    ],
)
def test_known_answers(of: Set, radius: tuple[int, int], diameter: tuple[int, int]) -> None:
    """By hand; the cell of numbers of both signs is moved by its whole range."""
    assert of.radius == Lengths(*radius)
    assert of.diameter == Lengths(*diameter)


def test_lengths_in_a_unit_are_rounded_up() -> None:
    """√2 and 3 halves."""
    assert Lengths(2, 2).l2() ** 2 >= 2
    assert Lengths(3, 9).l2(0.5) == 1.5
