"""Public sets of integer vectors, and how far one record moves a sum of vectors from such a set.

Every sensitivity in Parley rests on two facts. **A record's vector is a function only of that
record and of public values**, not of the other records; and **it is in a public set S**. Then
adding or removing one record moves the sum by at most the *radius* of S, sup ‖u‖. Replacing one
record moves it by at most the *diameter* of S, sup ‖u − v‖. Both hold for all values of the other
records. The radii and diameters of the sets below are the only formulas for a sensitivity. An
algorithm, a table or a query names its set.

A query's vectors need not be integers if a party rounds the *sum* of its records' vectors, once, to
⌊sum + ½⌋ in each coordinate. A coordinate between integers l and h moves the rounded sum by at most
h − l, because ⌊x + k⌋ = ⌊x⌋ + k. So intervals and their products hold unchanged. For any other set
a rounded sum moves by less than 1 more in each coordinate (`add_rounding`).

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

All values are integers, and bounds.

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
    """Bounds on a vector's L1 norm and on the square of its L2 norm."""

    l1: int
    l2_squared: int

    def __add__(self, other: NormBounds) -> NormBounds:
        """Return the bounds of two concatenated vectors."""
        return NormBounds(self.l1 + other.l1, self.l2_squared + other.l2_squared)

    def multiply(self, count: int) -> NormBounds:
        """Return the bounds of a sum of `count` such vectors: one person's records."""
        return NormBounds(count * self.l1, count**2 * self.l2_squared)

    def take_longer(self, other: NormBounds) -> NormBounds:
        """Return the larger of both bounds."""
        return NormBounds(max(self.l1, other.l1), max(self.l2_squared, other.l2_squared))

    def add_rounding(self, count: int) -> NormBounds:
        """Return the bounds of a vector with errors up to 1 in `count` coordinates (√d long)."""
        longer = self.l2_squared + count + 2 * (math.isqrt(self.l2_squared * count) + 1)
        return NormBounds(self.l1 + count, longer)

    def limit_to_dimension(self, count: int) -> NormBounds:
        """Apply ‖u‖₁ ≤ √d·‖u‖₂ for d = `count`; it is smaller if no vector reaches both bounds."""
        return NormBounds(min(self.l1, math.isqrt(count * self.l2_squared)), self.l2_squared)

    def compute_l2(self, unit: Fraction | float = 1) -> float:
        """Return the L2 norm in units of `unit`, rounded up."""
        return round_root_up(self.l2_squared * Fraction(unit) ** 2)


@dataclass(frozen=True)
class Set:
    """A public set of integer vectors, with bounds on the vectors' lengths and distances.

    Attributes:
        radius: sup ‖u‖, for one record more or less.
        diameter: sup ‖u − v‖, for one record replaced.
        largest: sup ‖u‖∞.
    """

    radius: NormBounds
    diameter: NormBounds
    largest: int

    @classmethod
    def interval(cls, low: int, high: int) -> Set:
        """Return the set of integers from `low` to `high`."""
        if low > high:
            raise ValueError(f"Expected low <= high, got {low} > {high}.")
        most, span = max(-low, high), high - low
        return cls(NormBounds(most, most**2), NormBounds(span, span**2), most)

    @classmethod
    def ball(cls, dimension: int, *, squared: int) -> Set:
        """Return the set ‖u‖₂² ≤ `squared`.

        |k| ≤ k² for integers, and u − v has at most twice the length.
        """
        if dimension < 1 or squared < 0:
            raise ValueError(f"Expected d >= 1 and a radius >= 0, got {dimension} and {squared}.")
        radius = NormBounds(squared, squared).limit_to_dimension(dimension)
        diameter = NormBounds(2 * radius.l1, 4 * squared).limit_to_dimension(dimension)
        return cls(radius, diameter, math.isqrt(squared))

    @classmethod
    def l1_ball(cls, most: int) -> Set:
        """Return the set ‖u‖₁ ≤ `most`.

        ‖u‖₂ ≤ ‖u‖₁, and the largest distance is from −r to r on one axis.
        """
        return cls.interval(-most, most)

    @classmethod
    def parabola(cls, scale: int) -> Set:
        """Return the set (s·t, s·(2t² − 1)), |t| ≤ 1, in doubles, each vector or the sum rounded.

        ‖·‖² = (t − t′)²(1 + 4(t + t′)²) is largest at t = 1, t + t′ = a with 8a² + 1 = 8a: there it
        is 71/16 + √½. |t − t′|(1 + 2|t + t′|) is at most 25/8, at 1 and −¼. Each end is rounded by
        ½; 2⁻⁴¹ is far more than the error of double precision.
        """
        apart = scale * math.sqrt(71 / 16 + math.sqrt(0.5)) * (1 + 2.0**-41) + math.sqrt(2)
        farthest = NormBounds(math.ceil(3.125 * scale) + 2, math.ceil(apart**2))
        return cls(NormBounds(2 * scale, 2 * scale**2), farthest, scale)

    @classmethod
    def triangle(cls, numbers: int, categories: Sequence[int] = (), *, unit: int) -> Set:
        """Return the set of the weighted upper triangles of zzᵀ, and zero.

        z = (m, numbers in [−m, m], categories). m² is `unit`; entries need not be integers.

        A diagonal entry is 32·zᵢ², an off-diagonal entry 45·zᵢzⱼ. A category is several indicators
        with values 0 and m, of which at most one is not 0. Products of two indicators of one
        category are 0 and omitted. For an indicator zᵢ² and m·zᵢ are the same number, so they are
        one entry with 55.

        L2, with K = 1 + columns: ‖·‖² ≤ 32²K²m⁴, minus 11.5·K(K − 1)·m⁴ for the off-diagonal
        entries. ⟨·, ·⟩ is 45²/2·(z·y)² plus terms that are at least 0, except for 24·m⁴ per
        indicator that both vectors have. That is less than what the squares leave.

        L1, for numbers: with u, w = (z ± y)/2, |u| + |w| ≤ m and zᵢzⱼ − yᵢyⱼ = 2(uᵢwⱼ + wᵢuⱼ). So
        the total is at most 2·45·Σ|u|·Σ|w| + (4·32 − 2·45)·Σ|uᵢwᵢ|, which is f(n) at |u| = |w|. For
        two or more indicators Σ|u| and Σ|w| are each at most m, so these count as two numbers. The
        total is also at most two radii, each without the 32·m² that both vectors have.
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
        """Return the set of concatenations of a vector from each set; the bounds add up."""
        none = NormBounds(0, 0)
        return cls(
            sum((part.radius for part in parts), none),
            sum((part.diameter for part in parts), none),
            max((part.largest for part in parts), default=0),
        )

    def add_rounding(self, count: int) -> Set:
        """Return the set's bounds for sums that are rounded once, in `count` coordinates."""
        radius, diameter = (each.add_rounding(count) for each in (self.radius, self.diameter))
        return replace(self, radius=radius, diameter=diameter)

    def spread_over_cells(self, cells: int) -> Set:
        """Return the set of vectors in one of `cells` positions, with zeros elsewhere.

        The largest difference may be u in one position and −v in another.
        """
        if cells == 1:
            return self
        return replace(self, diameter=self.diameter.take_longer(self.radius + self.radius))

    def add_zero(self) -> Set:
        """Return the set with zeros added, for a record that may not count.

        The largest distance from zero is the radius.
        """
        return replace(self, diameter=self.diameter.take_longer(self.radius))

    def restrict_to_acute(self) -> Set:
        """Return the set for vectors with u·v ≥ 0, such as counts or triangles of xxᵀ.

        ‖u − v‖² ≤ ‖u‖² + ‖v‖².
        """
        most = min(self.diameter.l2_squared, 2 * self.radius.l2_squared)
        return replace(self, diameter=NormBounds(self.diameter.l1, most))


def compute_sensitivity(given: Set, neighbouring: Neighbouring, *, records: int = 1) -> NormBounds:
    """Return how far one neighbour moves a sum of vectors of a set, for `records` per person."""
    replaced = neighbouring is Neighbouring.REPLACE_ONE
    return (given.diameter if replaced else given.radius).multiply(records)
