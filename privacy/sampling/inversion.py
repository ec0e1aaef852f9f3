"""Exact inversion of uniform variables: decided by floats, or by mpmath if floats cannot decide.

Each lane is a uniform U in (0, 1): an endless binary expansion. The stream has given its first 63
bits (the 64th bit of a word is a sign). An integer law is the count of thresholds above U

    X = #{j ≥ 0 : U ≤ S(j)},    S(j) = P[X > j].

Fast path: a float position y with ⌊y⌋ = X, and a bound on its error that covers the width of the
63-bit cell. If no integer is within that bound, X is decided. A sampler may try a cheap position
with a large bound before a better one (`round_to_nearest`,
`parley.privacy.sampling.rounded_gaussian`). Otherwise U is compared with S(j) in mpmath, at 160
bits more than the known bits of U, and U is extended by 64 bits as long as the cell contains the
threshold. So the law is exact; the errors only affect speed.

The result is a function of the keystream only, not of the platform's last float bits: bits are
drawn for a lane only if a threshold is within its cell, and a float never decides such a lane. Two
hypotheses are tested against mpmath: `FLOAT_ERROR` bounds the relative error of the float functions
used; mpmath's exp, log, cos and erfc lose fewer than 64 of their ≥ 223 bits.

The module also draws exact uniform integers below n: a word beyond the last whole multiple of n is
drawn again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from parley.privacy.sampling.random_stream import NoiseStream

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
WordArray: TypeAlias = npt.NDArray[np.uint64]

Enclosure: TypeAlias = Callable[[Any, int], tuple[Any, Any]]
"""(mpmath context, known bits of U) → lower and upper bound of one real number."""

Survival: TypeAlias = Callable[[Any, int, int], tuple[Any, Any]]
"""(mpmath context, known bits of U, j) → lower and upper bound of S(j) = P[X > j]."""

FLOAT_ERROR: Final = 2.0**-47
"""Relative error allowed for scipy's ndtri and numpy's log, exp and expm1.

It includes the few rounding errors after them. For ndtri, Cephes states a peak of 4.6e-16, and a
comparison with mpmath found 8.3e-16 < 2⁻⁵⁰.
"""

SMALLEST_SCALE: Final = 2.0**-20
LARGEST_SCALE: Final = 2.0**40
"""Largest accepted scale, in grid units.

Beyond 2⁴⁰ float64 no longer resolves the grid. Within it an int64 overflows with probability <
exp(−2²²), and then raises OverflowError.
"""

MAGNITUDE_BITS: Final = 63
_MAGNITUDE: Final = np.uint64(2**MAGNITUDE_BITS - 1)
_GUARD_BITS: Final = 160
_PAD_BITS: Final = 64
_EXTENSION_BITS: Final = 64
_CHUNK: Final = 1 << 16  # smaller chunks make threads wait for the interpreter's lock between calls
_LOCAL = threading.local()


def check_scale(name: str, scale: float) -> float:
    """Return the scale as a float; raise ValueError unless it is within [2⁻²⁰, 2⁴⁰]."""
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise ValueError(f"Expected {name} within [2⁻²⁰, 2⁴⁰] grid units, got {scale:g}.")
    return float(scale)


def check_size(name: str, size: int) -> None:
    """Raise ValueError for a negative count."""
    if size < 0:
        raise ValueError(f"Expected {name} ≥ 0, got {size}.")


def iterate_chunks(size: int, width: int = 1) -> Iterator[slice]:
    """Yield slices of [0, size) such that arrays with rows of `width` stay in the cache."""
    step = max(_CHUNK // width, 1)
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def apply_signs(counts: IntArray, words: WordArray) -> IntArray:
    """Negate in place the counts [n] whose word [n] has its top bit set, which U does not use."""
    sign = words.view(np.int64) >> np.int64(MAGNITUDE_BITS)  # 0 or −1, and −x = (x xor −1) + 1
    counts ^= sign
    counts -= sign
    return counts


def get_mp_context() -> Any:
    """Return this thread's mpmath context; each thread has its own precision."""
    if not hasattr(_LOCAL, "context"):
        from mpmath.ctx_mp import MPContext  # noqa: PLC0415 - start-up: `plan` draws nothing (mpmath takes 33 ms)

        _LOCAL.context = MPContext()
    return _LOCAL.context


def widen(mp: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return (low, high) ≥ 0 widened by 2⁶⁴ units in the last place, more than mpmath's error."""
    pad = mp.ldexp(1, _PAD_BITS - mp.prec)
    return low * (1 - pad), high * (1 + pad)


class Uniform:
    """A uniform on (0, 1) with `bits` known bits: U ∈ [numerator, numerator + 1]/2^bits."""

    __slots__ = ("_stream", "bits", "numerator")

    def __init__(self, word: int, stream: NoiseStream) -> None:
        self.numerator = word & int(_MAGNITUDE)
        self.bits = MAGNITUDE_BITS
        self._stream = stream

    def extend(self) -> None:
        """Draw the next 64 bits of the expansion."""
        word = int(self._stream.draw_words(1)[0])
        self.numerator = self.numerator << _EXTENSION_BITS | word
        self.bits += _EXTENSION_BITS

    def compute_bounds(self, mp: Any) -> tuple[Any, Any]:
        """Return the ends of the cell that contains U, exact while `mp.prec` > `bits`."""
        return mp.ldexp(self.numerator, -self.bits), mp.ldexp(self.numerator + 1, -self.bits)

    def is_at_most(self, threshold: Enclosure) -> bool:
        """Return whether U ≤ threshold, drawing bits until it is certain (ends almost surely)."""
        mp = get_mp_context()
        while True:
            mp.prec = self.bits + _GUARD_BITS
            low, high = threshold(mp, self.bits)
            left, right = self.compute_bounds(mp)
            if right <= low:
                return True
            if left >= high:
                return False
            self.extend()


def find_exact_value(uniform: Uniform, survival: Survival, guess: int) -> int:
    """Return #{j ≥ 0 : U ≤ S(j)} for a decreasing S, exactly, by galloping from a guess."""

    def beyond(j: int) -> bool:
        return uniform.is_at_most(lambda mp, bits: survival(mp, bits, j))

    high = max(guess, 0)
    low, step = high - 1, 1
    while beyond(high):
        low, high, step = high, high + step, 2 * step
    while low >= 0 and not beyond(low):
        low, high, step = max(low - step, -1), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if beyond(middle) else (low, middle)
    return high


def to_uniform_floats(words: WordArray) -> tuple[FloatArray, FloatArray]:
    """Return the middle u of each word's cell, [n], and the slack, [n], that the cell costs.

    With the cell [m, m+1]/2⁶³ and |f′(u)| ≤ 1.26/u, as for −ln u and Φ⁻¹(u/2), every U in it has
    |f(U) − f(u)| ≤ 1.26·ln((m+½)/m) ≤ 1/m; the rounding of u costs 1.26·2⁻⁵² more. The slack is
    infinite for m = 0, so such a lane is always decided exactly.
    """
    magnitude = (words & _MAGNITUDE).view(np.int64).astype(np.float64)
    with np.errstate(divide="ignore"):
        slack = np.reciprocal(magnitude)
    slack += 2.0**-50
    magnitude += 0.5
    magnitude *= 2.0**-MAGNITUDE_BITS
    return magnitude, slack


def _find_undecided(distance: FloatArray, error: FloatArray | float) -> npt.NDArray[np.intp]:
    """Return the lanes whose distance to a threshold may be within the error."""
    return np.flatnonzero(~(distance > error))  # written such that NaN is undecided


def round_to_nearest(
    position: FloatArray, error: float | FloatArray
) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Return the integer nearest to every position [n], and the lanes that `error` could change.

    Overwrites `position`; a lane with NaN is undecided.
    """
    counts = np.rint(position)
    position -= counts
    np.abs(position, out=position)
    decided = position < 0.5 - error - 2.0**-53  # minus the subtraction's rounding; false for NaN
    if decided.all():
        return counts, np.empty(0, dtype=np.intp)
    return counts, np.flatnonzero(~decided)


def invert(
    words: WordArray,
    position: FloatArray,
    error: FloatArray,
    survival: Callable[[int], Survival],
    stream: Callable[[int], NoiseStream],
) -> IntArray:
    """Return X ≥ 0 of every lane, int64 [n].

    `position` [n] ≥ 0 has ⌊y⌋ = X up to `error` [n]; `survival(lane)` is the exact law of a lane,
    and `stream(lane)` gives further words for it.
    """
    counts = np.floor(position).astype(np.int64)
    for lane in _find_undecided(np.abs(position - np.rint(position)), error).tolist():
        uniform = Uniform(int(words[lane]), stream(lane))
        counts[lane] = find_exact_value(uniform, survival(lane), int(counts[lane]))
    return counts


def accept(
    words: WordArray,
    margin: FloatArray,
    error: FloatArray,
    threshold: Callable[[int], Enclosure],
    stream: NoiseStream,
) -> npt.NDArray[np.bool_]:
    """Return whether U ≤ threshold in every lane, bool [n].

    `margin` [n] > 0 exactly if it does, up to `error` [n]; `threshold(lane)` encloses the exact
    threshold of a lane.
    """
    accepted = margin > 0
    for lane in _find_undecided(np.abs(margin), error).tolist():
        accepted[lane] = Uniform(int(words[lane]), stream).is_at_most(threshold(lane))
    return accepted


def draw_integers_below(bound: int, size: int, stream: NoiseStream) -> NDArray[np.int64]:
    """Draw `[size]` independent uniform integers from 0 … bound − 1."""
    check_size("size", size)
    if not 1 <= bound <= 2**63:
        raise ValueError(f"Expected a bound from 1 to 2⁶³, got {bound}.")
    # The last word that belongs to a whole multiple of the bound.
    last = np.uint64(2**64 // bound * bound - 1)
    words = stream.draw_words(size)
    while len(late := np.flatnonzero(words > last)):
        words[late] = stream.draw_words(len(late))
    return (words % np.uint64(bound)).astype(np.int64)
