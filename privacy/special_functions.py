"""Functions of scipy.special, which is imported at the first call.

Importing it takes a third of the start-up time of `parley predict`, which needs none of them.

    >>> float(ndtri(0.5))
    0.0
"""

from __future__ import annotations

from functools import cache
from typing import Any


def erfcx(x: Any) -> Any:
    """Return e^(x²)·erfc(x)."""
    return _load_special().erfcx(x)


def gammainc(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function P(a, x)."""
    return _load_special().gammainc(a, x)


def gammaincc(a: Any, x: Any) -> Any:
    """Return 1 − P(a, x), exact if it is small.

    P[χ² > c] with d degrees of freedom is its value at a = d/2, x = c/2.
    """
    return _load_special().gammaincc(a, x)


def ndtr(x: Any) -> Any:
    """Return Φ(x)."""
    return _load_special().ndtr(x)


def ndtri(p: Any) -> Any:
    """Return Φ⁻¹(p)."""
    return _load_special().ndtri(p)


@cache
def _load_special() -> Any:
    from scipy import special  # noqa: PLC0415 - start-up: `predict` needs none (scipy.special takes 0.17 s)

    return special
