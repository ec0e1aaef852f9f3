"""exp and tanh of +, −, ×, ÷ and powers of two alone: the same bits in every array.

A library's exp differs between the body and the tail of an array, and between machines. Below is
elementwise what IEEE 754 rounds correctly, in one order, without fused multiply-add: a number's
result is a function of that number.

    >>> bool(abs(exp(np.array([-1.0]))[0] - math.exp(-1)) < 1e-16)
    True
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LEAST: Final = -700.0
_TERMS: Final = tuple(1 / math.factorial(k) for k in range(13, -1, -1))


def exp(values: Array) -> Array:
    """e^v of finite v ≤ 700, to a relative 10⁻¹⁵·(1 + |v|); below −700 it is that of −700."""
    v = np.maximum(values, _LEAST)
    halvings = np.rint(v * (1 / math.log(2)))
    v -= halvings * math.log(2)  # |v| ≤ ln(2)/2: the rest of the series is below 10⁻¹⁷
    series = np.full_like(v, _TERMS[0])
    for term in _TERMS[1:]:
        series *= v
        series += term
    return np.ldexp(series, halvings.astype(np.int32))


def tanh(values: Array) -> Array:
    """tanh v of finite v, to an absolute 10⁻¹⁵·(1 + |v|)."""
    decayed = exp(-2 * np.abs(values))
    return np.copysign((1 - decayed) / (1 + decayed), values)
