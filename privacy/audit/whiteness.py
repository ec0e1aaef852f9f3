"""Whether noise repeats itself: across coordinates, rounds, parties or worlds.

Every law here is symmetric and independent in each sign, so that the signs of residuals, laid end
to end, are fair coins. The products of coins at any one lag are fair coins again (the pairs
(i, i + k) form paths, without a circle), and Hoeffding's inequality holds for their sum exactly,
whatever the law's tails:

    P[|Σ s_i·s_{i+k}| ≥ z·√(n − k)] ≤ 2·exp(−z²/2).

All lags are computed by one FFT, and α is divided by their number.

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).standard_normal(2048)
    >>> repeated_lag(noise) is None, repeated_lag(np.concatenate([noise, noise])).lag
    (True, 2048)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len

ALPHA = 1e-6
_LEAST_PAIRS = 64
"""Fewer coins than this cannot reach the threshold of any lag."""


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """A lag at which noise repeats.

    Attributes:
        lag: by so many places; negative products mean that the sign is turned.
        z: Σ s_i·s_{i+lag} over √(n − lag).
        threshold: |z| of honest noise is above it with chance at most α, over all lags.
    """

    lag: int
    z: float
    threshold: float


def repeated_lag(residuals: NDArray[np.float64], *, alpha: float = ALPHA) -> Repetition | None:
    """The most suspicious lag, if honest noise would not have it; else None.

    Args:
        residuals: of any shape, in the order in which the noise was drawn.
    """
    flat = np.ravel(residuals)
    # A rounded law has zeros, which are no coins.
    signs = np.sign(flat)
    count = signs.size
    if count <= _LEAST_PAIRS:
        return None
    size = next_fast_len(2 * count, real=True)
    spectrum = np.fft.rfft(signs, size)
    products = np.fft.irfft(np.abs(spectrum) ** 2, size)[1 : count - _LEAST_PAIRS + 1]
    lags = np.arange(1, products.size + 1)
    scores = np.rint(products) / np.sqrt(count - lags)
    threshold = math.sqrt(2 * math.log(2 * products.size / alpha))
    worst = int(np.abs(scores).argmax())
    if abs(scores[worst]) <= threshold:
        return None
    return Repetition(lag=int(lags[worst]), z=float(scores[worst]), threshold=threshold)
