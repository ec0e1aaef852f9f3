"""A Gamma variable of any rational shape, known to as many bits as are asked for.

V ~ Gamma(a, 1), a = i + α with i an integer and 0 ≤ α < 1, is −ln(U₁⋯U_i) + B·E: E ~ Exp(1), and
B ~ Beta(α, 1 − α) by Jöhnk's rejection (1964; Devroye 1986, chapter IX, theorem 3.4): X = U^(1/α),
Y = W^(1/(1−α)), kept where X + Y ≤ 1, then B = X/(X + Y). A trial is kept with probability
Γ(1+α)Γ(2−α) ≥ π/4. Every uniform is an endless expansion (`parley.privacy.sampling.inversion`), so
that what is kept is decided exactly and V is enclosed by elementary functions, of 200 bits and
more: float64 `gammaincinv` has no proved distance.

>>> from fractions import Fraction
>>> from parley.privacy.sampling.stream import NoiseStream
>>> low, high = Gamma(Fraction(11, 18), NoiseStream.from_seed(1)).bounds(200)
>>> 0 < low <= high, high / low - 1 < 2**-150
(True, True)
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

from parley.privacy.sampling.inversion import Uniform, context, widen
from parley.privacy.sampling.stream import NoiseStream

__all__ = ["Gamma", "product"]

_GUARD_BITS = 160


class Gamma:
    """One draw of Gamma(`shape`, 1).

    Raises:
        ValueError: not shape > 0.
    """

    def __init__(self, shape: Fraction, stream: NoiseStream) -> None:
        if not shape > 0:
            raise ValueError(f"Expected shape > 0, got {shape}.")
        whole = math.floor(shape)
        self._fraction = shape - whole
        self._logarithms = [Uniform(word, stream) for word in stream.words(whole).tolist()]
        self._rest = self._kept(stream) if self._fraction else ()
        self._bits = 0
        self._known: tuple[Any, Any] = (None, None)

    def bounds(self, bits: int) -> tuple[Any, Any]:
        """The ends of an interval that V is in, from at least `bits` bits of every uniform."""
        mp = context()
        mp.prec = bits + _GUARD_BITS
        return self.enclosure(mp, bits)

    def enclosure(self, mp: Any, bits: int) -> tuple[Any, Any]:
        """The same in a context of higher precision than `bits`."""
        if bits > self._bits:
            self._known, self._bits = self._enclosed(mp, bits), bits
        return self._known

    def _kept(self, stream: NoiseStream) -> tuple[Uniform, Uniform, Uniform]:
        """The first trial with X + Y ≤ 1, and E's uniform."""
        while True:
            one, other = (Uniform(word, stream) for word in stream.words(2).tolist())

            def threshold(mp: Any, bits: int, one: Uniform = one) -> tuple[Any, Any]:
                # W ≤ (1 − X)^(1−α), decreasing in U.
                _known(one, bits)
                low, high = (self._power(mp, end, self._fraction) for end in one.bounds(mp))
                rest = 1 - self._fraction
                most, least = 1 - low, max(1 - high, mp.zero)
                return widen(mp, _raised(mp, least, rest), _raised(mp, most, rest))

            if other.at_most(threshold):
                return one, other, Uniform(int(stream.words(1)[0]), stream)

    @staticmethod
    def _power(mp: Any, value: Any, root: Fraction) -> Any:
        """value^(1/root) for 0 ≤ value ≤ 1."""
        if not value:
            return mp.zero
        return mp.exp(mp.log(value) * root.denominator / root.numerator)

    def _enclosed(self, mp: Any, bits: int) -> tuple[Any, Any]:
        for uniform in (*self._logarithms, *self._rest):
            _known(uniform, bits)
        shift = -sum(uniform.bits for uniform in self._logarithms)
        left = mp.ldexp(product(mp, [u.numerator for u in self._logarithms]), shift)
        right = mp.ldexp(product(mp, [u.numerator + 1 for u in self._logarithms]), shift)
        low, high = -mp.log(right), -mp.log(left)  # −ln is decreasing
        if self._rest:
            one, other, exponential = self._rest
            alpha = self._fraction
            x_low, x_high = (self._power(mp, end, alpha) for end in one.bounds(mp))
            y_low, y_high = (self._power(mp, end, 1 - alpha) for end in other.bounds(mp))
            # X/(X + Y) grows with X and falls with Y.
            near, far = exponential.bounds(mp)
            low -= mp.log(far) * x_low / (x_low + y_high)
            high -= mp.log(near) * x_high / (x_high + y_low)
        return widen(mp, max(low, mp.zero), high)


def product(mp: Any, factors: list[int]) -> Any:
    """The product of integers, rounded to the working precision after every 32 of them."""
    groups = (math.prod(factors[i : i + 32]) for i in range(0, len(factors), 32))
    return functools.reduce(lambda total, group: total * group, groups, mp.one)


def _known(uniform: Uniform, bits: int) -> None:
    while uniform.bits < bits or not uniform.numerator:
        uniform.extend()


def _raised(mp: Any, value: Any, power: Fraction) -> Any:
    if not value:
        return mp.zero
    return mp.exp(mp.log(value) * power.numerator / power.denominator)
