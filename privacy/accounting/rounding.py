"""Rounding to the safe side: exact rationals, and floats and roots rounded outwards.

Privacy costs and noise are rounded up, never in favour of the claim.

A float stands for the decimal number that it prints as, so the numbers that a person wrote add up
exactly: `to_fraction(0.1)` is 1/10.

    >>> to_fraction(0.1) * 10 == 1
    True
    >>> round_quotient_up(1.0, 3.0) * 3 >= 1
    True
"""

from __future__ import annotations

import functools
import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

_DUST = Decimal("1e-12")
_SMALL = Decimal("1e-4")
_LARGE = Decimal("1e16")
"""From here on a number has an exponent, as below `_SMALL`: Python's own limits."""


@functools.lru_cache(maxsize=4096)  # a run converts the same noise parameters in every round
def to_fraction(value: float) -> Fraction:
    """Return the decimal number that the finite float `value` prints as."""
    return Fraction(Decimal(repr(float(value))))


def round_up(value: Fraction) -> float:
    """Return the least float that prints as at least `value` ≥ 0; ∞ beyond the largest float."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf
    while math.isfinite(near):
        numerator, denominator = Decimal(repr(near)).as_integer_ratio()
        if numerator * value.denominator >= value.numerator * denominator:
            break
        near = math.nextafter(near, math.inf)
    return near


def format_rounded_up(value: float, digits: int = 6) -> str:
    """Format a number ≥ 0 in at most `digits` significant digits, never below its value.

    All costs shown to people use it: charged ε and ρ, and δ. It hides the rounding error of a
    double: if the value exceeds a shorter number by less than 1e-12 of itself, it prints that
    number.

    >>> (format_rounded_up(4.144251, 4), format_rounded_up(0.5), format_rounded_up(1e-5),
    ... format_rounded_up(0.1 + 0.2), format_rounded_up(12345.6))
    ('4.145', '0.5', '1e-05', '0.3', '12345.6')
    """
    return _format_rounded(value, digits, ROUND_CEILING)


def format_rounded_down(value: float, digits: int = 6) -> str:
    """Format a remaining budget in at most `digits` significant digits, never above its value.

    >>> format_rounded_down(0.89996, 4), format_rounded_down(0.3 - 0.1), format_rounded_down(0.0)
    ('0.8999', '0.2', '0')
    """
    return _format_rounded(value, digits, ROUND_FLOOR)


def format_exact(value: float) -> str:
    """Format a number that a person chose, such as a budget's ε or δ, with all its digits.

    >>> format_exact(0.12345678), format_exact(1.0), format_exact(1e-05), format_exact(1e300)
    ('0.12345678', '1', '1e-05', '1e+300')
    """
    return _format_rounded(value, 17, ROUND_CEILING)  # a double prints as at most 17 digits


def _format_rounded(value: float, digits: int, side: str) -> str:
    if not math.isfinite(value):
        return "∞" if value > 0 else f"{value}"
    given = Decimal(repr(float(value)))
    shown = Context(prec=digits).create_decimal(given)
    if abs(shown - given) > abs(given) * _DUST:
        shown = Context(prec=digits, rounding=side).create_decimal(given)
    if shown == 0 or _SMALL <= abs(shown) < _LARGE:
        return f"{shown.normalize():f}"
    digits_shown, exponent = f"{shown.normalize():e}".split("e")
    return f"{digits_shown}e{int(exponent):+03d}"


def round_root_up(square: Fraction) -> float:
    """Return a float at or a few ulp above √square, even if the square under- or overflows.

    >>> round_root_up(Fraction(1, 25)), round_root_up(Fraction(2)) ** 2 >= 2
    (0.2, True)
    """
    own = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if own**2 == square:
        return round_up(own)
    # √(p/q) is the integer root of p·q·4^k over q·2^k; rounded up it is exact to 2^-k.
    shift = max(0, 64 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    root = math.isqrt((square.numerator << (2 * shift)) // square.denominator)
    return round_up(Fraction(root + 1, 1 << shift))


def round_quotient_up(numerator: float, denominator: float) -> float:
    """Return the least float that is, and prints as, at least numerator/denominator.

    This holds for the decimal reading (accountant) and the binary reading (sampler) of both
    numbers. The smaller reading of the denominator is used.
    """
    divisor = min(to_fraction(denominator), Fraction(denominator))
    near = round_up(to_fraction(numerator) / divisor)
    while math.isfinite(near) and Fraction(near) < Fraction(numerator) / divisor:
        near = math.nextafter(near, math.inf)
    return near


def round_up_to_bits(value: float, bits: int) -> float:
    """Return the least float with at most `bits` significant bits that is at least `value` > 0.

    The exp and log of two processors or C libraries differ in their last digits, and so do the
    results of a search that uses them. On a grid much coarser than these digits, both find the same
    result.

    >>> round_up_to_bits(1.0, 16), round_up_to_bits(1.0 + 1e-13, 16) == 1 + 2.0**-15
    (1.0, True)
    """
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.ceil(math.ldexp(mantissa, bits)), exponent - bits)


def sum_up(first: float, second: float) -> float:
    """Return a float at or an ulp above the sum of two numbers ≥ 0."""
    return math.nextafter(first + second, math.inf) if first and second else first + second


def parse_fraction(name: str, text: object) -> Fraction:
    """Parse a rational written as "numerator/denominator"; raise ValueError for anything else."""
    # Digits only: Fraction would also accept "1e999999999", which fills the memory.
    if not isinstance(text, str) or not re.fullmatch(r"\d{1,4000}(/[1-9]\d{0,3999})?", text, re.A):
        raise ValueError(f'Expected {name} as "numerator/denominator", got {text!r}.')
    return Fraction(text)


def check_non_negative(name: str, value: float) -> None:
    """Raise ValueError unless value ≥ 0 (∞ is allowed, NaN is not)."""
    if not value >= 0:
        raise ValueError(f"Expected {name} ≥ 0, got {value}.")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless 0 < value < ∞."""
    if not 0 < value < math.inf:
        raise ValueError(f"Expected finite {name} > 0, got {value}.")


def check_whole(name: str, value: object, minimum: int = 1) -> int:
    """Return the value; raise ValueError unless it is an integer ≥ `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"Expected an integer {name} ≥ {minimum}, got {value!r}.")
    return value


def check_epsilon(epsilon: float) -> None:
    """Raise ValueError unless 0 ≤ ε < ∞."""
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"Expected 0 ≤ epsilon < ∞, got {epsilon}.")


def check_delta(delta: float) -> None:
    """Raise ValueError unless 0 ≤ δ < 1."""
    if not 0 <= delta < 1:
        raise ValueError(f"Expected 0 ≤ delta < 1, got {delta}.")


def check_rate(alpha: float) -> None:
    """Raise ValueError unless 0 ≤ α ≤ 1."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"Expected a false-alarm rate from 0 to 1, got {alpha}.")
