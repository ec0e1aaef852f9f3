"""How each noise law is split into shares: the rows of `SHARED_LAWS`.

What shares are, and why their sum is the law, is in `parley.privacy.mechanisms.shares`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.events import Approximate, Event
from parley.privacy.accounting.events import Gaussian as GaussianEvent
from parley.privacy.accounting.rounding import quotient_up, root_up
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.sampling.gaussian import (
    add_rounded_gaussian,
    add_rounded_gaussian_rows,
    add_rounded_mixtures,
)
from parley.privacy.sampling.inversion import LARGEST_SCALE
from parley.privacy.sampling.negative_binomial import negative_binomial
from parley.privacy.sampling.stream import NoiseStream

LEAST_SHARE: Final = 4.0
"""Least standard deviation of a Gaussian share, in ring units: below, the theorem says little."""

JITTER: Final = 16.0
"""w: variance of what is added to a share of l2-laplace, in ring units squared."""

_DRAWN_TOGETHER: Final = 1 << 14
"""Coordinates of shares from one stream that are drawn in one call, at most but for one share."""

Integers = NDArray[np.int64]


class Split(Protocol):
    """What a law asks of the shares that its noise is split into (`shares.Shares`)."""

    @property
    def parties(self) -> int:
        """m, how many shares there are."""

    @property
    def honest(self) -> int:
        """k, how many make up the mechanism's noise."""

    @property
    def scale(self) -> float:
        """Of one share, in fine units."""

    @property
    def ring_unit(self) -> float:
        """Fine units to a unit of the ring."""


@dataclass(frozen=True, kw_only=True)
class SharedLaw:
    """How one noise law is split; a row of `SHARED_LAWS`.

    Attributes:
        rounded_after: whether a party may round to a coarser grid after it added its share.
        floor: least scale of a share, in ring units; 0 for none.
        coarsest: most fine units to a ring unit that its sampler takes.
        scale: mechanism, k → least scale of one share, in fine units, rounded up.
        add: shares, mechanism, `[B, d]`, streams: adds a share to each row.
        add_dealt: shares, mechanism, `[d]`, r, stream: adds r shares in one draw.
        tail: shares, mechanism, p → bound on |Σ of m shares| in fine units, but with probability p.
        event_of: shares, mechanism, r → what r shares cost; None where nothing is proved.
    """

    rounded_after: bool
    floor: float
    coarsest: float = math.inf
    scale: Callable[[Any, int], float]
    add: Callable[[Split, Any, Integers, Sequence[NoiseStream]], None]
    add_dealt: Callable[[Split, Any, Integers, int, NoiseStream], None]
    tail: Callable[[Split, Any, float], float]
    event_of: Callable[[Split, Any, int], Event | None]


def law_of(mechanism: Mechanism) -> SharedLaw:
    """The row of a mechanism's law.

    Raises:
        ValueError: a law without shares, and what to choose.
    """
    law = SHARED_LAWS.get(mechanism.law)
    if law is None:
        raise ValueError(
            f"Expected a noise law that is split into shares, of {', '.join(SHARED_LAWS)}, got "
            f"{mechanism.law}: choose one of them, or privacy.noise-point = 'server', which trusts "
            "the server with the bare sum."
        )
    return law


def _together(
    vectors: Integers, streams: Sequence[NoiseStream]
) -> Iterator[tuple[Integers, NoiseStream]]:
    """Rows that one stream gives the shares of, some at a time; else every row by itself."""
    same = len(set(map(id, streams))) == 1
    most = max(1, _DRAWN_TOGETHER // vectors.shape[1]) if same else 1
    for at in range(0, len(vectors), most):
        yield vectors[at : at + most], streams[at]


# Gaussian: N(0, σ²/k) each.


def _gaussian_scale(mechanism: Any, honest: int) -> float:
    """s with s²k ≥ σ², for the decimal and for the binary reading of both."""
    if honest == 1:
        return float(mechanism.scale)
    share = root_up(Fraction(mechanism.scale) ** 2 / honest)
    while Fraction(share) ** 2 * honest < Fraction(mechanism.scale) ** 2:
        share = math.nextafter(share, math.inf)
    return share


def _gaussian_add(shares: Split, _: Any, vectors: Integers, streams: Sequence[NoiseStream]) -> None:
    if len(set(map(id, streams))) == 1:
        add_rounded_gaussian(vectors.reshape(-1), shares.scale, streams[0])
        return
    add_rounded_gaussian_rows(vectors, shares.scale, streams)


def _gaussian_dealt(
    shares: Split, _: Any, total: Integers, count: int, stream: NoiseStream
) -> None:
    add_rounded_gaussian(total, shares.scale * math.sqrt(count), stream)


def _gaussian_tail(shares: Split, mechanism: Any, probability: float) -> float:
    log_odds = math.log(2 * mechanism.dimension) - math.log(probability)
    return shares.scale * math.sqrt(2 * shares.parties * log_odds)


def _gaussian_event(shares: Split, mechanism: Any, count: int) -> Event:
    # s√r, rounded down: μ = Δ/(s√r) is never less than it is.
    scale = shares.scale * math.sqrt(count) * (1 - 1e-15)
    return GaussianEvent(mu=quotient_up(mechanism.sensitivity, scale))


def _sampled_event(shares: Split, mechanism: Any, count: int) -> Event:
    # As above: a multiplier that is rounded down.
    own = replace(mechanism, sigma=shares.scale * math.sqrt(count) * (1 - 1e-15))
    whole: Approximate = own.event()
    return whole.event


# l2-laplace: (1 + b²‖t‖²)^(−(d+1)/2) is infinitely divisible; its k-th root, and a jitter.


def _l2_add(
    shares: Split, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
) -> None:
    shape = Fraction(mechanism.dimension + 1, 2 * shares.honest)
    jitter = JITTER * shares.ring_unit**2
    for rows, stream in _together(vectors, streams):
        add_rounded_mixtures(rows, shares.scale, shape, jitter, stream)


def _l2_dealt(
    shares: Split, mechanism: Any, total: Integers, count: int, stream: NoiseStream
) -> None:
    own = JITTER * shares.ring_unit**2
    # As many at a time as the sampler takes the jitter of: groups of shares add up like shares.
    most = max(int(LARGEST_SCALE / own), 1)
    for begin in range(0, count, most):
        together = min(most, count - begin)
        shape = Fraction((mechanism.dimension + 1) * together, 2 * shares.honest)
        add_rounded_mixtures(total[None, :], shares.scale, shape, own * together, stream)


def _chernoff(exponent: float, log_odds: float, jitter: float = 0.0) -> float:
    """x with P[|z| > x] ≤ e^(log terms): E e^{uz} ≤ (1 − u²)^(−exponent)·e^{jitter·u²/2}, u < 1.

    Any u gives a bound. The best has u² ≈ 2·log_odds/exponent, or is close to 1.
    """
    grid = (1 / math.sqrt(1 + math.exp(step / 8)) for step in range(-160, 320))
    return min(
        (log_odds - exponent * math.log1p(-u * u) + jitter * u * u / 2) / u
        for u in grid
        if 0 < u < 1
    )


def _l2_tail(shares: Split, mechanism: Any, probability: float) -> float:
    log_odds = math.log(2 * mechanism.dimension) - math.log(probability)
    exponent = shares.parties / shares.honest * (mechanism.dimension + 1) / 2
    jitter = shares.parties * JITTER * (shares.ring_unit / shares.scale) ** 2
    return shares.scale * _chernoff(exponent, log_odds, jitter)


# Discrete Laplace: the difference of two negative binomials, integers, exact.


def _discrete_add(
    shares: Split, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
) -> None:
    del mechanism
    for rows, stream in _together(vectors, streams):
        draws = negative_binomial(shares.scale, shares.honest, 2 * rows.size, stream)
        np.add(rows, (draws[: rows.size] - draws[rows.size :]).reshape(rows.shape), out=rows)


def _discrete_dealt(
    shares: Split, mechanism: Any, total: Integers, count: int, stream: NoiseStream
) -> None:
    rows = np.zeros((count, total.size), dtype=np.int64)
    _discrete_add(shares, mechanism, rows, [stream] * count)
    total += rows.sum(axis=0)


def _discrete_tail(shares: Split, mechanism: Any, probability: float) -> float:
    # (sinh(u/2t)/sinh(1/2t))² ≤ u² for 0 ≤ u ≤ 1: E e^{uz/t} ≤ (1 − u²)^(−1) of the whole.
    log_odds = math.log(2 * mechanism.dimension) - math.log(probability)
    return shares.scale * _chernoff(shares.parties / shares.honest, log_odds)


def _while_whole(shares: Split, mechanism: Any, count: int) -> Event | None:
    """With k shares or more the law's own: more are post-processing. With fewer none is proved."""
    whole: Event = mechanism.event()
    return whole.ideal if count >= shares.honest else None


def _own_scale(mechanism: Any, honest: int) -> float:
    del honest
    return float(mechanism.scale)


_DISCRETE = SharedLaw(
    rounded_after=False,
    floor=0.0,
    scale=_own_scale,
    add=_discrete_add,
    add_dealt=_discrete_dealt,
    tail=_discrete_tail,
    event_of=_while_whole,
)

_GAUSSIAN = SharedLaw(
    rounded_after=True,
    floor=LEAST_SHARE,
    scale=_gaussian_scale,
    add=_gaussian_add,
    add_dealt=_gaussian_dealt,
    tail=_gaussian_tail,
    event_of=_gaussian_event,
)

_L2_LAPLACE = SharedLaw(
    rounded_after=True,
    floor=0.0,
    coarsest=math.sqrt(LARGEST_SCALE / JITTER),
    scale=_own_scale,
    add=_l2_add,
    add_dealt=_l2_dealt,
    tail=_l2_tail,
    event_of=_while_whole,
)

SHARED_LAWS: dict[str, SharedLaw] = {
    "gaussian": _GAUSSIAN,
    "sampled-gaussian": replace(_GAUSSIAN, event_of=_sampled_event),
    "l2-laplace": _L2_LAPLACE,
    "objective-perturbation": _L2_LAPLACE,
    "laplace": _DISCRETE,
    "laplace-l1": _DISCRETE,
    "laplace-as-printed": _DISCRETE,
}
"""Noise laws that are split into shares, by `Mechanism.law`."""
