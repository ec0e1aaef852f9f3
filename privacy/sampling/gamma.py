"""Gamma variables: many as floats with error bounds, and single ones to any number of bits.

V ~ Gamma(a, 1), a = i + α with i an integer and 0 ≤ α < 1, is −ln(U₁⋯U_i) + B·E with E ~ Exp(1) and
B ~ Beta(α, 1 − α). `HalfGammaDraws`, for α = ½, uses B = cos²(πU). `GammaDraws`, for any rational
shape, uses Jöhnk's rejection (1964; Devroye 1986, chapter IX, theorem 3.4): X = U^(1/α), Y =
W^(1/(1−α)), kept if X + Y ≤ 1, then B = X/(X + Y). A trial is kept with probability Γ(1+α)Γ(2−α) ≥
π/4.

Every uniform is an endless expansion (`parley.privacy.sampling.inversion`). So acceptance is
decided exactly, and V is enclosed by elementary functions of 200 bits and more: float64
`gammaincinv` has no proved distance. Floats have an error bound. Callers that cannot decide by it
request the enclosure.

>>> from fractions import Fraction
>>> from parley.privacy.sampling.random_stream import NoiseStream
>>> drawn = GammaDraws(Fraction(11, 18), 3, NoiseStream.from_seed(1))
>>> low, high = drawn.get_draw(2).compute_bounds(200)
>>> abs(drawn.values[2] - low) <= drawn.errors[2], 0 < low <= high, high / low - 1 < 2**-150
(True, True, True)
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from parley.privacy.sampling.inversion import (
    FLOAT_ERROR,
    FloatArray,
    Uniform,
    WordArray,
    get_mp_context,
    to_uniform_floats,
    widen,
)
from parley.privacy.sampling.random_stream import NoiseStream

_GUARD_BITS = 160

_UNDERFLOW = 2.0**-1000
"""Bound on the loss if a float is so small that it becomes 0."""


_Factor: TypeAlias = Callable[..., tuple[Any, Any]]
"""(mpmath context, uniforms that B depends on) → bounds of B."""


class GammaVariable:
    """One V = −ln(U₁⋯U_i) + B·E, enclosed to any precision.

    `rest` contains the uniforms of B and E in the order of their draw; if it is empty, there is no
    B·E. `factor` computes B's bounds, and `place` is the position of E's uniform in `rest`.
    """

    def __init__(
        self, logarithms: list[Uniform], rest: list[Uniform], factor: _Factor, place: int
    ) -> None:
        self._logarithms, self._rest = logarithms, rest
        self._factor, self._place = factor, place
        self._bits = 0
        self._known: tuple[Any, Any] = (None, None)

    def compute_bounds(self, bits: int) -> tuple[Any, Any]:
        """Return an interval that contains V, from at least `bits` bits of every uniform."""
        mp = get_mp_context()
        mp.prec = bits + _GUARD_BITS
        return self.refine_bounds(mp, bits)

    def refine_bounds(self, mp: Any, bits: int) -> tuple[Any, Any]:
        """Return the same in a context of higher precision than `bits`."""
        if bits > self._bits:
            self._known, self._bits = self._evaluate_bounds(mp, bits), bits
        return self._known

    def _evaluate_bounds(self, mp: Any, bits: int) -> tuple[Any, Any]:
        for uniform in (*self._logarithms, *self._rest):
            _extend_to_bits(uniform, bits)
        shift = -sum(uniform.bits for uniform in self._logarithms)
        left = mp.ldexp(_multiply(mp, [u.numerator for u in self._logarithms]), shift)
        right = mp.ldexp(_multiply(mp, [u.numerator + 1 for u in self._logarithms]), shift)
        low, high = -mp.log(right), -mp.log(left)  # −ln is decreasing
        if self._rest:
            near, far = self._rest[self._place].compute_bounds(mp)
            least, most = self._factor(mp, *self._rest)
            low -= mp.log(far) * least
            high -= mp.log(near) * most
        return widen(mp, max(low, mp.zero), high)


class _GammaDraws(ABC):
    """Base of several Gamma draws.

    Attributes:
        values, errors: `[count]` floats, and a bound on the error of each.
    """

    values: FloatArray
    errors: FloatArray

    def __init__(self, stream: NoiseStream) -> None:
        self._stream = stream
        self._draws_by_row: dict[int, GammaVariable] = {}

    def get_draw(self, row: int) -> GammaVariable:
        """Return one of the draws; its uniforms are extended by bits of the stream if needed."""
        if row not in self._draws_by_row:
            self._draws_by_row[row] = self._open_draw(row)
        return self._draws_by_row[row]

    @abstractmethod
    def _open_draw(self, row: int) -> GammaVariable: ...

    def _build_uniforms(self, words: WordArray) -> list[Uniform]:
        return [Uniform(word, self._stream) for word in words.tolist()]


class HalfGammaDraws(_GammaDraws):
    """`count` draws of Gamma(`halves`/2, 1)."""

    def __init__(self, halves: int, count: int, stream: NoiseStream) -> None:
        super().__init__(stream)
        self._odd = halves % 2 == 1
        width = halves // 2 + 2 * self._odd
        self._words = stream.draw_words(count * width).reshape(count, width)
        terms, errors = _compute_exponentials(self._words)
        if self._odd:  # the last two are E and the angle of E·cos²(πU)
            angles, _ = to_uniform_floats(self._words[:, -1])
            # |d cos²(πu)/du| ≤ π, and the error of u is at most 2⁻⁵²: 2⁻⁴⁹ covers both.
            errors[:, -2] += 2.0**-49 * terms[:, -2]
            terms[:, -2] *= np.cos(np.pi * angles) ** 2
            terms, errors = terms[:, :-1], errors[:, :-1]
        self.values, self.errors = _sum_rows(terms, errors)

    def _open_draw(self, row: int) -> GammaVariable:
        uniforms = self._build_uniforms(self._words[row])
        whole = len(uniforms) - 2 * self._odd
        return GammaVariable(uniforms[:whole], uniforms[whole:], _compute_squared_cosine, 0)


class GammaDraws(_GammaDraws):
    """`count` draws of Gamma(`shape`, 1)."""

    def __init__(self, shape: Fraction, count: int, stream: NoiseStream) -> None:
        if not shape > 0:
            raise ValueError(f"Expected shape > 0, got {shape}.")
        super().__init__(stream)
        whole = math.floor(shape)
        self._fraction = shape - whole
        self._words = stream.draw_words(count * whole).reshape(count, whole)
        self.values, self.errors = _sum_rows(*_compute_exponentials(self._words))
        self._decided: dict[int, list[Uniform]] = {}
        self._rest: WordArray = np.empty((count, 0), dtype=np.uint64)
        if self._fraction:
            kept = self._draw_accepted_words(count)
            self._rest = np.column_stack([kept, stream.draw_words(count)])
            self._add_rest()

    def _open_draw(self, row: int) -> GammaVariable:
        rest = self._build_uniforms(self._rest[row])
        rest[:2] = self._decided.get(row, rest[:2])
        return GammaVariable(
            self._build_uniforms(self._words[row]), rest, self._compute_quotient, 2
        )

    def _draw_accepted_words(self, count: int) -> WordArray:
        """Draw `[count, 2]` the words of U and W of every row's first trial with X + Y ≤ 1."""
        kept = np.empty((count, 2), dtype=np.uint64)
        left = np.arange(count)
        while left.size:
            words = self._stream.draw_words(2 * left.size).reshape(-1, 2)
            accepted = self._accept_trials(words, left)
            kept[left[accepted]] = words[accepted]
            left = left[~accepted]
        return kept

    def _accept_trials(self, words: WordArray, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Return whether W ≤ (1 − X)^(1−α) for the pairs of words `[n, 2]` of these rows."""
        (minus_ln_x, error), rest = self._compute_minus_ln_x(words), float(1 - self._fraction)
        exponential, own = _compute_exponentials(words[:, 1])
        # −ln W ≥ −(1 − α)·ln(1 − X). ln(1 − e^(−a)) is concave with the slope 1/(e^a − 1).
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            bound = rest * -np.log(-np.expm1(-minus_ln_x))
            slope = 1 / np.expm1(np.maximum(minus_ln_x - error, 0))
            margin = exponential - bound
            own += FLOAT_ERROR * (1 + bound) + rest * error * slope
            left = ~(np.abs(margin) > own)  # written such that NaN stays undecided
        accepted = margin > 0
        for lane in np.flatnonzero(left).tolist():
            one, other = self._build_uniforms(words[lane])
            accepted[lane] = other.is_at_most(functools.partial(self._compute_threshold, one))
            if accepted[lane]:  # with the bits that were drawn for the decision
                self._decided[int(rows[lane])] = [one, other]
        return accepted

    def _compute_threshold(self, one: Uniform, mp: Any, bits: int) -> tuple[Any, Any]:
        """Return bounds of (1 − X)^(1−α), which is decreasing in U."""
        _extend_to_bits(one, bits)
        low, high = (_compute_power(mp, end, 1 / self._fraction) for end in one.compute_bounds(mp))
        rest = 1 - self._fraction
        return widen(
            mp, _compute_power(mp, max(1 - high, mp.zero), rest), _compute_power(mp, 1 - low, rest)
        )

    def _compute_minus_ln_x(self, words: WordArray) -> tuple[FloatArray, FloatArray]:
        terms, errors = _compute_exponentials(words[:, 0])
        inverse = float(1 / self._fraction)
        return terms * inverse, errors * inverse + FLOAT_ERROR * terms * inverse

    def _add_rest(self) -> None:
        """Add B·E = E/(1 + Y/X)."""
        minus_ln_x, error = self._compute_minus_ln_x(self._rest)
        exponential, own = _compute_exponentials(self._rest[:, 1])
        inverse = float(1 / (1 - self._fraction))
        difference = minus_ln_x - exponential * inverse
        # |d ln B| ≤ |d ln(Y/X)|.
        # A bound of ∞ or NaN leaves the draw undecided.
        with np.errstate(over="ignore", invalid="ignore"):
            moved = np.expm1(error + (own + FLOAT_ERROR * exponential) * inverse)
            factor = 1 / (1 + np.exp(difference))
            exponential, own = _compute_exponentials(self._rest[:, 2])
            self.values += factor * exponential
            self.errors += factor * (moved * (exponential + own) + own)
        self.errors += FLOAT_ERROR * factor * exponential + _UNDERFLOW

    def _compute_quotient(
        self, mp: Any, one: Uniform, other: Uniform, _: Uniform
    ) -> tuple[Any, Any]:
        """Return bounds of X/(X + Y), which grows with X and falls with Y."""
        alpha = self._fraction
        rest = 1 / (1 - alpha)
        x_low, x_high = (_compute_power(mp, end, 1 / alpha) for end in one.compute_bounds(mp))
        y_low, y_high = (_compute_power(mp, end, rest) for end in other.compute_bounds(mp))
        return x_low / (x_low + y_high), x_high / (x_high + y_low)


def _compute_exponentials(words: WordArray) -> tuple[FloatArray, FloatArray]:
    """Return −ln U of every word, and a bound on the error of each."""
    uniforms, slack = to_uniform_floats(words)
    terms = -np.log(uniforms)
    return terms, slack + FLOAT_ERROR * terms


def _sum_rows(terms: FloatArray, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of rows `[n, i]` and their errors; FLOAT_ERROR covers the pairwise sum's."""
    total = terms.sum(axis=1)
    return total, errors.sum(axis=1) + FLOAT_ERROR * total


def _compute_squared_cosine(mp: Any, _: Uniform, angle: Uniform) -> tuple[Any, Any]:
    left, right = angle.compute_bounds(mp)
    middle = mp.cos(mp.pi * left) ** 2
    reach = mp.pi * (right - left) + mp.ldexp(1, 64 - mp.prec)
    return max(middle - reach, mp.zero), min(middle + reach, mp.one)


def _multiply(mp: Any, factors: list[int]) -> Any:
    """Return the product of integers, rounded to the working precision after every 32 factors."""
    groups = (math.prod(factors[i : i + 32]) for i in range(0, len(factors), 32))
    return functools.reduce(lambda total, group: total * group, groups, mp.one)


def _extend_to_bits(uniform: Uniform, bits: int) -> None:
    while uniform.bits < bits or not uniform.numerator:
        uniform.extend()


def _compute_power(mp: Any, value: Any, power: Fraction) -> Any:
    """Return value^power for 0 ≤ value ≤ 1."""
    if not value:
        return mp.zero
    return mp.exp(mp.log(value) * power.numerator / power.denominator)
