"""Radius and diameter of the sets, against all of their vectors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.kernel.sets import (
    Acute,
    Ball,
    Interval,
    L1Ball,
    Lengths,
    OneCell,
    OrNothing,
    Parabola,
    Product,
    Set,
    moved_by,
)

Vector = tuple[int, ...]


def vectors(of: Set) -> list[Vector]:
    """Every vector of a small set."""
    return list(dict.fromkeys(_vectors(of)))


def _vectors(of: Set) -> Iterator[Vector]:
    match of:
        case Interval(low, high):
            yield from ((each,) for each in range(low, high + 1))
        case Ball():
            ends = range(-of.largest, of.largest + 1)
            every = itertools.product(ends, repeat=of.dimension)
            yield from (each for each in every if sum(v * v for v in each) <= of.squared)
        case L1Ball(most):
            every = itertools.product(range(-most, most + 1), repeat=2)
            yield from (each for each in every if sum(map(abs, each)) <= most)
        case OneCell():
            inner = vectors(of.within)
            nothing = (0,) * len(inner[0])
            for cell, vector in itertools.product(range(of.cells), inner):
                yield tuple(
                    itertools.chain(*(vector if at == cell else nothing for at in range(of.cells)))
                )
        case OrNothing(within):
            yield from (inner := vectors(within))
            yield (0,) * len(inner[0])
        case Acute(within):
            yield from (each for each in vectors(within) if min(each) >= 0)
        case Parabola(scale):
            along = np.linspace(-1, 1, 40 * scale + 1)
            both = np.rint(np.stack([scale * along, scale * (2 * along * along - 1)], axis=1))
            yield from map(tuple, both.astype(int).tolist())
        case Product(parts):
            for each in itertools.product(*(vectors(part) for part in parts)):
                yield tuple(itertools.chain(*each))
        case _:
            raise AssertionError(of)


simple = st.one_of(
    st.tuples(st.integers(-4, 4), st.integers(0, 4)).map(lambda ends: Interval(ends[0], sum(ends))),
    st.builds(Ball, dimension=st.integers(1, 2), squared=st.integers(0, 9)),
    st.builds(L1Ball, st.integers(0, 3)),
    st.builds(Parabola, st.integers(1, 12)),
)
ball = st.one_of(
    st.builds(Ball, dimension=st.just(2), squared=st.integers(0, 9)),
    st.builds(L1Ball, st.integers(0, 3)),
)
celled = st.one_of(simple, st.builds(OneCell, cells=st.integers(1, 3), within=simple))
optional = st.one_of(celled, st.builds(OrNothing, celled))
every_set = st.one_of(
    optional,
    st.builds(Acute, ball),
    st.tuples(optional, simple).map(Product),
    st.builds(OneCell, cells=st.just(2), within=optional),
)


def longest(many: list[Vector]) -> Lengths:
    return Lengths(
        max(sum(map(abs, each)) for each in many), max(sum(v * v for v in each) for each in many)
    )


@settings(max_examples=150, deadline=None)
@given(every_set)
def test_lengths_hold_for_all_vectors_and_are_not_loose(of: Set) -> None:
    """Nothing is longer; and by their own coordinates nothing is claimed twice over."""
    many = vectors(of)
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
    ("of", "radius", "diameter"),
    [
        (Interval(-2, 5), (5, 25), (7, 49)),
        (Interval(3, 3), (3, 9), (0, 0)),
        (Ball(dimension=9, squared=25), (15, 25), (30, 100)),
        (L1Ball(4), (4, 16), (8, 64)),
        (OneCell(cells=2, within=Interval(1, 1)), (1, 1), (2, 2)),
        (OneCell(cells=1, within=Interval(1, 1)), (1, 1), (0, 0)),
        (OneCell(cells=2, within=Interval(-3, 3)), (3, 9), (6, 36)),
        (OrNothing(OneCell(cells=1, within=Interval(1, 1))), (1, 1), (1, 1)),
        (Product((Interval(0, 1), Interval(0, 2))), (3, 5), (3, 5)),
        (Acute(L1Ball(4)), (4, 16), (8, 32)),
        (Acute(Ball(dimension=2, squared=25)), (7, 25), (14, 50)),
        (Parabola(4096), (8192, 2 * 4096**2), (12802, 86338459)),
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
