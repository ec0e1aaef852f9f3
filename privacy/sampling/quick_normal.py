"""A quick |Z|, Z ~ N(0, 1), from words: a guess that decides nearly every lane of an inversion.

    f(u) = −Φ⁻¹(u/2),   P[|Z| > f(u)] = u,   by a parabola on each of 2¹⁰ cells an octave of u.

A cell is found from the leading bits of the float u, so that cells shrink with u and |u³f‴(u)| ≤ 1
bounds the error of every one. What the guess leaves open is decided by
`parley.privacy.sampling.inversion`: its error touches the speed of a sampler and never its law.

    >>> import numpy as np
    >>> quick_half_normal(np.array([2**62, 3 * 2**61], dtype=np.uint64)).round(6).tolist()
    [0.67449, 0.318639]
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np

from parley.privacy.sampling.inversion import FloatArray, WordArray
from parley.privacy.special import ndtri

QUICK_ERROR: Final = 2.0**-36
"""Bound on |f(U) − quick|, for every U in the cell of a word's 63 bits.

Chebyshev interpolation of degree 2 on a cell of relative width w = 2⁻¹⁰ is off by at most
w³·max|u³f‴|/192 < 2⁻³⁷·⁵; the cell of the word and rounding cost 2⁻⁴² more. Tested in
every cell."""

LARGEST_QUICK: Final = 5.0
"""No quick value is larger: f(2⁻²⁰) = 4.9."""

_OCTAVES: Final = 20  # below u = 2⁻²⁰ there is no guess
_BITS: Final = 10
_MAGNITUDE: Final = np.int64(2**63 - 1)
_SHIFT: Final = np.int64(52 - _BITS)
# Leading bits of the float m = 2⁶³u at u = 2⁻²⁰, less one: the first cell is that of no guess.
_FIRST: Final = np.int64(((1023 + 63 - _OCTAVES) << _BITS) - 1)


@functools.cache
def _parabolas() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return c₀, c₁, c₂ of every cell, in powers of m = 2⁶³u; NaN in the cell of no guess."""

    cell = np.arange(_OCTAVES << _BITS)
    octave, place = (cell >> _BITS) - _OCTAVES, cell & (2**_BITS - 1)
    left, width = np.ldexp(1 + place * 2.0**-_BITS, octave), np.ldexp(2.0**-_BITS, octave)
    nodes = (1 + np.cos(np.pi * np.array([[5.0], [3.0], [1.0]]) / 6)) / 2
    values = -ndtri(0.5 * (left + width * nodes))
    s0, s1, s2 = np.linalg.solve(np.vander(nodes[:, 0], increasing=True), values)
    # In s = (u − left)/width = (u/left − 1)·t: powers of u, where nothing cancels, as u ≈ left.
    t = left / width
    powers = (s0 - s1 * t + s2 * t**2, (s1 - 2 * s2 * t) / width, s2 / width**2)
    nothing = np.array([np.nan])
    scaled = (np.ldexp(c, -63 * power) for power, c in enumerate(powers))
    c0, c1, c2 = (np.concatenate([nothing, c]) for c in scaled)
    return c0, c1, c2


def quick_half_normal(words: WordArray) -> FloatArray:
    """Return |Z| of every word [n] up to `QUICK_ERROR`, [n]; NaN for a word of U < 2⁻²⁰."""
    c0, c1, c2 = _parabolas()
    cell = words.view(np.int64) & _MAGNITUDE
    magnitude = cell.astype(np.float64)
    np.right_shift(magnitude.view(np.int64), _SHIFT, out=cell)
    cell -= _FIRST
    # Clipped below to the cell of no guess; above, m rounds to 2⁶³, the end of the last cell.
    value: FloatArray = c2.take(cell, mode="clip")
    value *= magnitude
    power = c1.take(cell, mode="clip")
    value += power
    value *= magnitude
    value += c0.take(cell, mode="clip", out=power)
    return value
