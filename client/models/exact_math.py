"""exp and tanh from +, −, ×, ÷ and powers of two only: the same bits in each array.

A library's exp differs between the body and the tail of an array, and between machines. The
functions below use only elementwise operations that IEEE 754 rounds correctly, in one order,
without fused multiply-add. A number's result is therefore a function of that number only.

    >>> bool(abs(exp(np.array([-1.0]))[0] - math.exp(-1)) < 1e-14)
    True
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_MAX_EXPONENT: Final = 700.0
_TERMS: Final = (
    7.072585949269223e-09,
    1.0208690299958306e-07,
    1.321544258792169e-06,
    1.5252657260200837e-05,
    0.0001540353044173605,
    0.0013333558230164974,
    0.009618129107606888,
    0.05550410866444772,
    0.24022650695910097,
    0.69314718055995,
    1.0,
)
"""Coefficients of 2^f for |f| ≤ ½, to a relative 2^-51: degree 10, through its Chebyshev points."""


def exp(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Compute e^v to a relative 2^-49 + |v|·2^-52; clamp v to ±700; NaN stays NaN."""
    v = np.asarray(values, np.float64).clip(-_MAX_EXPONENT, _MAX_EXPONENT)
    v *= 1 / math.log(2)
    doublings = np.rint(v)
    v -= doublings
    series = v * _TERMS[0]
    series += _TERMS[1]
    for term in _TERMS[2:]:
        series *= v
        series += term
    # The last eleven bits are the exponent of 2^k. The shift removes those before them.
    doublings += 2.0**52 + 1023
    bits = doublings.view(np.int64)
    bits <<= 52
    series *= doublings
    return np.asarray(series)


def sum_in_order(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum `[…, K]` to `[…]`, from the first to the last."""
    total: NDArray[np.float64] = values[..., 0].copy()
    for each in range(1, values.shape[-1]):
        total += values[..., each]
    return total


def tanh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute tanh v of finite v, to an absolute 10⁻¹⁵·(1 + |v|)."""
    decayed = exp(-2 * np.abs(values))
    return np.copysign((1 - decayed) / (1 + decayed), values)
