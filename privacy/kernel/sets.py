"""Public sets of whole-number vectors, and how far one record moves a sum of vectors from one.

Two facts carry every sensitivity in Parley. **A record's vector is a function of that record and of
public things alone**, whoever stands beside it; and **it lies in a public set S**. Then one record
more or less moves the sum by at most the *radius* of S, sup ‖u‖, and a replaced one by at most its
*diameter*, sup ‖u − v‖: whatever else the sum is of. Radius and diameter of the sets below are the
only formulas of a sensitivity; an algorithm, a table or a query names its set.

| set | radius: L1, L2² | diameter: L1, L2² |
|---|---|---|
| `Interval` [l, h] | r = max(|l|, |h|), r² | h − l, (h − l)² |
| `Ball` ‖u‖₂² ≤ s, in d coordinates | ⌊√(d·s)⌋, s | ⌊√(4d·s)⌋, 4s |
| `L1Ball` ‖u‖₁ ≤ r | r, r² | 2r, 4r² |
| `OneCell`: u ∈ S in one of G cells, 0 in all others | of S | max of S's and twice S's radius |
| `OrNothing`: u ∈ S, or 0 | of S | max of S's and S's radius |
| `Product` of S₁, S₂, … | sums | sums |

All are whole numbers, and bounds: a vector of whole numbers has an L1 norm of at most its L2².

    >>> histogram = OneCell(cells=10, within=Interval(1, 1))
    >>> histogram.radius, histogram.diameter
    (Lengths(l1=1, l2_squared=1), Lengths(l1=2, l2_squared=2))
    >>> moved_by(Product((histogram, Ball(dimension=4, squared=9))), Neighbouring.REPLACE_ONE)
    Lengths(l1=14, l2_squared=38)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.rounding import root_up


@dataclass(frozen=True)
class Lengths:
    """Bounds of a vector's L1 norm, and of the square of its L2 norm."""

    l1: int
    l2_squared: int

    def __add__(self, other: Lengths) -> Lengths:
        """Of two vectors, one after the other."""
        return Lengths(self.l1 + other.l1, self.l2_squared + other.l2_squared)

    def times(self, count: int) -> Lengths:
        """Of a sum of `count` such vectors: a person's records, moved together."""
        return Lengths(count * self.l1, count**2 * self.l2_squared)

    def or_longer(self, other: Lengths) -> Lengths:
        """Of either."""
        return Lengths(max(self.l1, other.l1), max(self.l2_squared, other.l2_squared))

    def l2(self, unit: Fraction | float = 1) -> float:
        """The L2 norm in units of `unit`, rounded up."""
        return root_up(self.l2_squared * Fraction(unit) ** 2)


class Set(ABC):
    """A public set of vectors of whole numbers.

    Attributes:
        largest: no entry is larger in size.
    """

    @property
    @abstractmethod
    def radius(self) -> Lengths:
        """sup ‖u‖: of one record more or less."""

    @property
    @abstractmethod
    def diameter(self) -> Lengths:
        """sup ‖u − v‖: of one record replaced."""

    @property
    def largest(self) -> int:
        """sup ‖u‖∞."""
        return min(self.radius.l1, math.isqrt(self.radius.l2_squared))


def moved_by(given: Set, neighbouring: Neighbouring, *, records: int = 1) -> Lengths:
    """How far one neighbour moves a sum of vectors of a set; of a person with `records`, each."""
    replaced = neighbouring is Neighbouring.REPLACE_ONE
    return (given.diameter if replaced else given.radius).times(records)


@dataclass(frozen=True)
class Interval(Set):
    """One whole number from `low` to `high`."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"Expected low <= high, got {self.low} > {self.high}.")

    @property
    def radius(self) -> Lengths:
        """max(|l|, |h|)."""
        most = max(-self.low, self.high, 0)
        return Lengths(most, most**2)

    @property
    def diameter(self) -> Lengths:
        """h − l."""
        span = self.high - self.low
        return Lengths(span, span**2)


@dataclass(frozen=True, kw_only=True)
class Ball(Set):
    """‖u‖₂² ≤ `squared`, in `dimension` coordinates."""

    dimension: int
    squared: int

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.squared < 0:
            raise ValueError(f"Expected a dimension >= 1 and a radius >= 0, got {self}.")

    @property
    def radius(self) -> Lengths:
        """Cauchy–Schwarz: ‖u‖₁² ≤ d·‖u‖₂²; and |k| ≤ k² of whole numbers."""
        return Lengths(min(math.isqrt(self.dimension * self.squared), self.squared), self.squared)

    @property
    def diameter(self) -> Lengths:
        """u − v is in the ball of twice the radius."""
        apart = 4 * self.squared
        return Lengths(min(math.isqrt(self.dimension * apart), 2 * self.radius.l1), apart)


@dataclass(frozen=True)
class L1Ball(Set):
    """‖u‖₁ ≤ `most`."""

    most: int

    @property
    def radius(self) -> Lengths:
        """‖u‖₂ ≤ ‖u‖₁."""
        return Lengths(self.most, self.most**2)

    @property
    def diameter(self) -> Lengths:
        """From −r to r on one axis."""
        return self.radius.times(2)


@dataclass(frozen=True, kw_only=True)
class OneCell(Set):
    """A vector of `within` in one of `cells` places, zeros in all others."""

    cells: int
    within: Set

    @property
    def radius(self) -> Lengths:
        """The inner set's."""
        return self.within.radius

    @property
    def diameter(self) -> Lengths:
        """In one cell the inner set's; else u here and −v there."""
        own = self.within.diameter
        return own if self.cells == 1 else own.or_longer(self.radius + self.radius)


@dataclass(frozen=True)
class OrNothing(Set):
    """A vector of `within`, or zeros: a record may not count."""

    within: Set

    @property
    def radius(self) -> Lengths:
        """The inner set's."""
        return self.within.radius

    @property
    def diameter(self) -> Lengths:
        """The inner set's, or from zero to its farthest."""
        return self.within.diameter.or_longer(self.within.radius)


@dataclass(frozen=True)
class Product(Set):
    """One vector of each set, one after the other."""

    parts: tuple[Set, ...]

    @property
    def radius(self) -> Lengths:
        """All as far as they go."""
        return sum((each.radius for each in self.parts), Lengths(0, 0))

    @property
    def diameter(self) -> Lengths:
        """All as far as they go."""
        return sum((each.diameter for each in self.parts), Lengths(0, 0))

    @property
    def largest(self) -> int:
        """Of all parts."""
        return max((each.largest for each in self.parts), default=0)
