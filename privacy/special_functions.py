"""Functions of scipy.special, which is imported when the first of them is called.

Importing it takes a third of the time in which `parley predict` starts, and predicting needs none.

    >>> float(ndtri(0.5))
    0.0
"""

from __future__ import annotations

from functools import cache
from typing import Any


def erfcx(x: Any) -> Any:
    """e^(x²)·erfc(x)."""
    return _load_special().erfcx(x)


def gammainc(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function P(a, x)."""
    return _load_special().gammainc(a, x)


def gammaincc(a: Any, x: Any) -> Any:
    """1 − P(a, x), exact where it is small: of χ² with d degrees, beyond c, at d/2 and c/2."""
    return _load_special().gammaincc(a, x)


def ndtr(x: Any) -> Any:
    """Φ(x)."""
    return _load_special().ndtr(x)


def ndtri(p: Any) -> Any:
    """Φ⁻¹(p)."""
    return _load_special().ndtri(p)


@cache
def _load_special() -> Any:
    from scipy import special  # noqa: PLC0415 - start-up: `predict` needs none (scipy.special takes .17 s)

    return special
