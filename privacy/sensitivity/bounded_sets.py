"""Public sets of whole-number vectors, and how far one record moves a sum of vectors from one.

Two facts carry every sensitivity in Parley. **A record's vector is a function of that record and of
public things alone**, whoever stands beside it; and **it lies in a public set S**. Then one record
more or less moves the sum by at most the *radius* of S, sup ‖u‖, and a replaced one by at most its
*diameter*, sup ‖u − v‖: whatever else the sum is of. Radius and diameter of the sets below are the
only formulas of a sensitivity; an algorithm, a table or a query names its set.

A query's vectors need not be whole numbers if a party rounds the *sum* of its records' vectors,
once, to ⌊sum + ½⌋ in each coordinate. A coordinate between whole numbers l and h moves the rounded
sum by at most h − l, for ⌊x + k⌋ = ⌊x⌋ + k: intervals, and products of them, hold as they are. Of
any other set a rounded sum moves by less than 1 more in each coordinate (`add_rounding`).

| set | radius: L1, L2² | diameter: L1, L2² |
|---|---|---|
| `interval` [l, h] | r = max(|l|, |h|), r² | h − l, (h − l)² |
| `ball` ‖u‖₂² ≤ s, in d coordinates | ⌊√(d·s)⌋, s | ⌊√(4d·s)⌋, 4s |
| `l1_ball` ‖u‖₁ ≤ r | r, r² | 2r, 4r² |
| `parabola` (s·t, s·(2t² − 1)), |t| ≤ 1, rounded | 2s, 2s² | ⌈25s/8⌉ + 2, (√(71/16 + √½)·s + √2)² |
| `triangle` of zzᵀ, n numbers |zᵢ| ≤ m | f = m²(32n + 45n(n − 1)/2), (32nm²)² | f, 2·(32nm²)² |
| `add_rounding`: rounded sums from S, d numbers | of S, + d, (√· + √d)² | of S, + d, (√· + √d)² |
| `spread_over_cells`: u ∈ S in one of G cells, else 0 | of S | max of S's and twice S's radius |
| `add_zero`: u ∈ S, or 0 | of S | max of S's and S's radius |
| `restrict_to_acute`: u ∈ S, u·v ≥ 0 of any two | of S | of S; twice S's radius in L2² |
| `product` of S₁, S₂, … | sums | sums |

All are whole numbers, and bounds.

    >>> histogram = Set.interval(1, 1).spread_over_cells(10)
    >>> histogram.radius, histogram.diameter
    (NormBounds(l1=1, l2_squared=1), NormBounds(l1=2, l2_squared=2))
    >>> compute_sensitivity(Set.product(histogram, Set.ball(4, squared=9)),
    ...     Neighbouring.REPLACE_ONE)
    NormBounds(l1=14, l2_squared=38)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from parley.privacy.accounting.rounding import round_root_up
from parley.privacy.accounting.threat_model import Neighbouring

ON_DIAGONAL, OFF_DIAGONAL, INDICATED = 32, 45, 55
"""Weights of a triangle's entries: 45² ≤ 2·32², and 55² ≤ 32² + 45²."""


@dataclass(frozen=True)
class NormBounds:
    """Bounds of a vector's L1 norm, and of the square of its L2 norm."""

    l1: int
    l2_squared: int

    def __add__(self, other: NormBounds) -> NormBounds:
        """Of two vectors, one after the other."""
        return NormBounds(self.l1 + other.l1, self.l2_squared + other.l2_squared)

    def multiply(self, count: int) -> NormBounds:
        """Of a sum of `count` such vectors: a person's records, moved together."""
        return NormBounds(count * self.l1, count**2 * self.l2_squared)

    def take_longer(self, other: NormBounds) -> NormBounds:
        """Of either."""
        return NormBounds(max(self.l1, other.l1), max(self.l2_squared, other.l2_squared))

    def add_rounding(self, count: int) -> NormBounds:
        """Of a vector that is off by up to 1 in so many coordinates: √d in length."""
        longer = self.l2_squared + count + 2 * (math.isqrt(self.l2_squared * count) + 1)
        return NormBounds(self.l1 + count, longer)

    def limit_to_dimension(self, count: int) -> NormBounds:
        """‖u‖₁ ≤ √d·‖u‖₂ of d, which is less where no vector reaches both bounds."""
        return NormBounds(min(self.l1, math.isqrt(count * self.l2_squared)), self.l2_squared)

    def compute_l2(self, unit: Fraction | float = 1) -> float:
        """The L2 norm in units of `unit`, rounded up."""
        return round_root_up(self.l2_squared * Fraction(unit) ** 2)


@dataclass(frozen=True)
class Set:
    """A public set of vectors of whole numbers: how far its vectors go.

    Attributes:
        radius: sup ‖u‖, of one record more or less.
        diameter: sup ‖u − v‖, of one record replaced.
        largest: sup ‖u‖∞.
    """

    radius: NormBounds
    diameter: NormBounds
    largest: int

    @classmethod
    def interval(cls, low: int, high: int) -> Set:
        """One whole number from `low` to `high`."""
        if low > high:
            raise ValueError(f"Expected low <= high, got {low} > {high}.")
        most, span = max(-low, high), high - low
        return cls(NormBounds(most, most**2), NormBounds(span, span**2), most)

    @classmethod
    def ball(cls, dimension: int, *, squared: int) -> Set:
        """‖u‖₂² ≤ `squared`; |k| ≤ k² of whole numbers, and u − v has at most twice the length."""
        if dimension < 1 or squared < 0:
            raise ValueError(f"Expected d >= 1 and a radius >= 0, got {dimension} and {squared}.")
        radius = NormBounds(squared, squared).limit_to_dimension(dimension)
        diameter = NormBounds(2 * radius.l1, 4 * squared).limit_to_dimension(dimension)
        return cls(radius, diameter, math.isqrt(squared))

    @classmethod
    def l1_ball(cls, most: int) -> Set:
        """‖u‖₁ ≤ `most`: ‖u‖₂ ≤ ‖u‖₁, and from −r to r on one axis it goes farthest."""
        return cls.interval(-most, most)

    @classmethod
    def parabola(cls, scale: int) -> Set:
        """(s·t, s·(2t² − 1)) for |t| ≤ 1, in double precision; it, or its sum, in whole numbers.

        ‖·‖² = (t − t′)²(1 + 4(t + t′)²) is largest at t = 1, t + t′ = a with 8a² + 1 = 8a: there it
        is 71/16 + √½. |t − t′|(1 + 2|t + t′|) is 25/8 at most, at 1 and −¼. Each end is rounded by
        ½; 2⁻⁴¹ is far above what double precision adds.
        """
        apart = scale * math.sqrt(71 / 16 + math.sqrt(0.5)) * (1 + 2.0**-41) + math.sqrt(2)
        farthest = NormBounds(math.ceil(3.125 * scale) + 2, math.ceil(apart**2))
        return cls(NormBounds(2 * scale, 2 * scale**2), farthest, scale)

    @classmethod
    def triangle(cls, numbers: int, categories: Sequence[int] = (), *, unit: int) -> Set:
        """The weighted upper triangle of zzᵀ, z = (m, numbers in [−m, m], categories); or zeros.

        m² is `unit`; entries need not be whole.

        An entry on the diagonal is 32·zᵢ², one beside it 45·zᵢzⱼ. A category is so many indicators
        of m, at most one of which is not 0: those times each other, which are 0, are left out, and
        zᵢ² and m·zᵢ, which are one number, are one entry with 55.

        L2, of K = 1 + columns: ‖·‖² ≤ 32²K²m⁴, less 11.5·K(K − 1)·m⁴ for what is beside the
        diagonal; ⟨·, ·⟩ is 45²/2·(z·y)² and what is no less than 0, but for 24·m⁴ of each indicator
        that both have: that is less than what the squares leave. L1, of numbers:
        with u, w = (z ± y)/2, |u| + |w| ≤ m and zᵢzⱼ − yᵢyⱼ = 2(uᵢwⱼ + wᵢuⱼ), so that all of it is
        at most 2·45·Σ|u|·Σ|w| + (4·32 − 2·45)·Σ|uᵢwᵢ|, which is f(n) at |u| = |w|. Of two or more
        indicators Σ|u| and Σ|w| are m at most, each: they stand for two numbers there. Nor is it
        more than two radii, but for 32·m² that both have.
        """
        rows = 1 + numbers + len(categories)
        indicated = (INDICATED - OFF_DIAGONAL) * len(categories)
        pairs = OFF_DIAGONAL * (rows * (rows - 1) // 2) + indicated
        radius = unit * (ON_DIAGONAL * (1 + numbers) + pairs)
        wide = 1 + numbers + sum(min(each, 2) for each in categories)
        apart = unit * (ON_DIAGONAL * wide + OFF_DIAGONAL * (wide * (wide - 1) // 2))
        squared = (ON_DIAGONAL * rows * unit) ** 2
        return cls(
            NormBounds(radius, squared),
            NormBounds(max(radius, min(2 * (radius - ON_DIAGONAL * unit), apart)), 2 * squared),
            (INDICATED if categories else OFF_DIAGONAL) * unit,
        )

    @classmethod
    def product(cls, *parts: Set) -> Set:
        """A vector of each set, one after the other: all as far as they go."""
        none = NormBounds(0, 0)
        return cls(
            sum((part.radius for part in parts), none),
            sum((part.diameter for part in parts), none),
            max((part.largest for part in parts), default=0),
        )

    def add_rounding(self, count: int) -> Set:
        """Return the set's bounds for sums that are rounded once, in so many coordinates."""
        return replace(
            self, radius=self.radius.add_rounding(count), diameter=self.diameter.add_rounding(count)
        )

    def spread_over_cells(self, cells: int) -> Set:
        """A vector in one of `cells` places, zeros in all others: else u here and −v there."""
        if cells == 1:
            return self
        return replace(self, diameter=self.diameter.take_longer(self.radius + self.radius))

    def add_zero(self) -> Set:
        """A vector, or zeros, from which one goes as far as the radius: it may not count."""
        return replace(self, diameter=self.diameter.take_longer(self.radius))

    def restrict_to_acute(self) -> Set:
        """Those with u·v ≥ 0, as of counts, or triangles of xxᵀ: ‖u − v‖² ≤ ‖u‖² + ‖v‖²."""
        most = min(self.diameter.l2_squared, 2 * self.radius.l2_squared)
        return replace(self, diameter=NormBounds(self.diameter.l1, most))


def compute_sensitivity(given: Set, neighbouring: Neighbouring, *, records: int = 1) -> NormBounds:
    """How far one neighbour moves a sum of vectors of a set; of a person with `records`, each."""
    replaced = neighbouring is Neighbouring.REPLACE_ONE
    return (given.diameter if replaced else given.radius).multiply(records)
