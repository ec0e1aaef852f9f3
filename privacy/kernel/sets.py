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
| `Parabola` (s·t, s·(2t² − 1)), |t| ≤ 1, rounded | 2s, 2s² | ⌈25s/8⌉ + 2, (√(71/16 + √½)·s + √2)² |
| `OneCell`: u ∈ S in one of G cells, 0 in all others | of S | max of S's and twice S's radius |
| `OrNothing`: u ∈ S, or 0 | of S | max of S's and S's radius |
| `Acute`: u ∈ S, u·v ≥ 0 of any two | of S | of S; twice S's radius in L2² |
| `Product` of S₁, S₂, … | sums | sums |

All are whole numbers, and bounds.

    >>> histogram = OneCell(cells=10, within=Interval(1, 1))
    >>> histogram.radius, histogram.diameter
    (Lengths(l1=1, l2_squared=1), Lengths(l1=2, l2_squared=2))
    >>> moved_by(Product((histogram, Ball(dimension=4, squared=9))), Neighbouring.REPLACE_ONE)
    Lengths(l1=14, l2_squared=38)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
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

    def in_coordinates(self, count: int) -> Lengths:
        """‖u‖₁ ≤ √d·‖u‖₂ of d, which is less where no vector reaches both bounds."""
        return Lengths(min(self.l1, math.isqrt(count * self.l2_squared)), self.l2_squared)

    def l2(self, unit: Fraction | float = 1) -> float:
        """The L2 norm in units of `unit`, rounded up."""
        return root_up(self.l2_squared * Fraction(unit) ** 2)


class Set(ABC):
    """A public set of vectors of whole numbers."""

    @property
    @abstractmethod
    def lengths(self) -> tuple[Lengths, Lengths]:
        """Radius and diameter."""

    @property
    def radius(self) -> Lengths:
        """sup ‖u‖: of one record more or less."""
        return self.lengths[0]

    @property
    def diameter(self) -> Lengths:
        """sup ‖u − v‖: of one record replaced."""
        return self.lengths[1]

    @property
    def largest(self) -> int:
        """sup ‖u‖∞: no entry is larger in size."""
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
    def lengths(self) -> tuple[Lengths, Lengths]:
        """max(|l|, |h|), and h − l."""
        most, span = max(-self.low, self.high), self.high - self.low
        return Lengths(most, most**2), Lengths(span, span**2)


@dataclass(frozen=True, kw_only=True)
class Ball(Set):
    """‖u‖₂² ≤ `squared`, in `dimension` coordinates."""

    dimension: int
    squared: int

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.squared < 0:
            raise ValueError(f"Expected a dimension >= 1 and a radius >= 0, got {self}.")

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """|k| ≤ k² of whole numbers; u − v is in the ball of twice the radius."""
        radius = Lengths(self.squared, self.squared).in_coordinates(self.dimension)
        return radius, Lengths(2 * radius.l1, 4 * self.squared).in_coordinates(self.dimension)


@dataclass(frozen=True)
class L1Ball(Set):
    """‖u‖₁ ≤ `most`."""

    most: int

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """‖u‖₂ ≤ ‖u‖₁; from −r to r on one axis."""
        radius = Lengths(self.most, self.most**2)
        return radius, radius.times(2)


@dataclass(frozen=True)
class Parabola(Set):
    """(s·t, s·(2t² − 1)) for |t| ≤ 1, in double precision and rounded to whole numbers."""

    scale: int

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """‖·‖² = (t − t′)²(1 + 4(t + t′)²) is largest at t = 1, t + t′ = a with 8a² + 1 = 8a.

        There it is 71/16 + √½; |t − t′|(1 + 2|t + t′|) is 25/8 at most, at 1 and −¼. Each end is
        rounded by ½; 2⁻⁴¹ is far above what double precision adds.
        """
        both = Interval(-self.scale, self.scale).radius
        apart = self.scale * math.sqrt(71 / 16 + math.sqrt(0.5)) * (1 + 2.0**-41) + math.sqrt(2)
        return both + both, Lengths(math.ceil(3.125 * self.scale) + 2, math.ceil(apart**2))

    @property
    def largest(self) -> int:
        """s."""
        return self.scale


@dataclass(frozen=True)
class _Within(Set):
    """Some vectors of another set, perhaps with zeros around them."""

    within: Set

    @property
    def largest(self) -> int:
        """The inner set's."""
        return self.within.largest


@dataclass(frozen=True)
class OneCell(_Within):
    """A vector of `within` in one of `cells` places, zeros in all others."""

    cells: int = field(kw_only=True)

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """In one cell the inner set's; else u here and −v there."""
        radius, own = self.within.lengths
        return radius, own if self.cells == 1 else own.or_longer(radius + radius)


@dataclass(frozen=True)
class OrNothing(_Within):
    """A vector of `within`, or zeros: a record may not count."""

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """The inner set's, or from zero to its farthest."""
        radius, own = self.within.lengths
        return radius, own.or_longer(radius)


@dataclass(frozen=True)
class Acute(_Within):
    """Vectors of `within` with u·v ≥ 0: without numbers below 0, as counts; or triangles of xxᵀ."""

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """‖u − v‖² = ‖u‖² + ‖v‖² − 2u·v."""
        radius, own = self.within.lengths
        return radius, Lengths(own.l1, min(own.l2_squared, 2 * radius.l2_squared))


@dataclass(frozen=True)
class Product(Set):
    """One vector of each set, one after the other."""

    parts: tuple[Set, ...]

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """All as far as they go."""
        found = Lengths(0, 0), Lengths(0, 0)
        for radius, diameter in (part.lengths for part in self.parts):
            found = found[0] + radius, found[1] + diameter
        return found

    @property
    def largest(self) -> int:
        """Of all parts."""
        return max((each.largest for each in self.parts), default=0)
