"""Functions of scipy.special, which is imported when the first of them is called.

Importing it takes a third of the time in which `parley predict` starts, and predicting needs none.

    >>> float(ndtri(0.5))
    0.0
"""

from __future__ import annotations

from typing import Any

__all__ = ["erfcx", "gammainc", "ndtr", "ndtri"]


def erfcx(x: Any) -> Any:
    """e^(x²)·erfc(x)."""
    from scipy import special  # noqa: PLC0415 - start-up: `predict` needs none (scipy.special takes .17 s)

    return special.erfcx(x)


def gammainc(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function P(a, x)."""
    from scipy import special  # noqa: PLC0415 - start-up: `predict` needs none (scipy.special takes .17 s)

    return special.gammainc(a, x)


def ndtr(x: Any) -> Any:
    """Φ(x)."""
    from scipy import special  # noqa: PLC0415 - start-up: scipy.special takes .3 s

    return special.ndtr(x)


def ndtri(p: Any) -> Any:
    """Φ⁻¹(p)."""
    from scipy import special  # noqa: PLC0415 - start-up: `predict` needs none (scipy.special takes .17 s)

    return special.ndtri(p)
