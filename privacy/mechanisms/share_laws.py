"""How each noise law is split into shares: the rows of `SHARED_LAWS`.

What shares are, and why their sum is the law, is in `parley.privacy.mechanisms.shares`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.events import Approximate, Event
from parley.privacy.accounting.events import Gaussian as GaussianEvent
from parley.privacy.accounting.rounding import check_positive, quotient_up, root_up
from parley.privacy.mechanisms.base import Mechanism, chernoff, tail_odds
from parley.privacy.sampling.discrete import negative_binomial
from parley.privacy.sampling.gaussian import (
    add_rounded_gaussian,
    add_rounded_gaussian_rows,
    add_rounded_mixtures,
)
from parley.privacy.sampling.inversion import LARGEST_SCALE
from parley.privacy.sampling.stream import NoiseStream

LEAST_SHARE: Final = 4.0
"""Least standard deviation of a Gaussian share, in ring units: below, the theorem says little."""

JITTER: Final = 16.0
"""w: variance of what is added to a share of l2-laplace, in ring units squared."""

_DRAWN_TOGETHER: Final = 1 << 14
"""Coordinates of shares from one stream that are drawn in one call, at most but for one share."""

_MOST_SHARES: Final = 2**20

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Split:
    """The numbers of a noise that is split among the parties of a sum; `shares.Shares` acts on it.

    The mechanism's numbers are in fine units, 2^`fine_bits` to a unit of the ring.

    Attributes:
        parties: m; the ring has room for as many shares.
        honest: k, shares that make up the mechanism's noise.
        colluders: c, parties that may give theirs to the server; t = k + c survive at least.
        scale: of one share, in fine units: s of a Gaussian, b or t of a Laplace.
        fine_bits: h, bits that a party drops after it added its share.
    """

    parties: int
    honest: int
    colluders: int
    scale: float
    fine_bits: int = 0

    def __post_init__(self) -> None:
        for name in ("parties", "honest", "colluders", "fine_bits"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"Expected {name} to be an integer, got {value!r}.")
        if self.colluders < 0 or self.honest < 1 or not self.least <= self.parties <= _MOST_SHARES:
            raise ValueError(
                "Expected k ≥ 1 honest shares, c ≥ 0 colluders and k + c ≤ m ≤ 2^20 parties, got "
                f"k = {self.honest}, c = {self.colluders}, m = {self.parties}."
            )
        if not 0 <= self.fine_bits <= 60:
            raise ValueError(f"Expected 0 to 60 fine bits, got {self.fine_bits}.")
        check_positive("the scale of a share", self.scale)

    @property
    def least(self) -> int:
        """t = k + c: contributions without which nothing may be opened."""
        return self.honest + self.colluders

    @property
    def ring_unit(self) -> float:
        """Fine units to a unit of the ring."""
        return 2.0**self.fine_bits


class SharedLaw(ABC):
    """How one noise law is split; an instance is a row of `SHARED_LAWS`.

    Attributes:
        rounded_after: whether a party may round to a coarser grid after it added its share.
        floor: least scale of a share, in ring units; 0 for none.
        coarsest: most fine units to a ring unit that its sampler takes.
    """

    rounded_after: bool = True
    floor: float = 0.0
    coarsest: float = math.inf

    def scale(self, mechanism: Any, honest: int) -> float:
        """Least scale of one share of k, in fine units, rounded up."""
        del honest
        return float(mechanism.scale)

    @abstractmethod
    def add(
        self, shares: Split, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
    ) -> None:
        """Adds a share to each row of `[B, d]`."""

    @abstractmethod
    def add_dealt(
        self, shares: Split, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        """Adds r shares to `[d]` in one draw."""

    @abstractmethod
    def tail(self, shares: Split, mechanism: Any, probability: float) -> float:
        """A bound on |Σ of m shares| in fine units, but with probability p."""

    def event_of(self, shares: Split, mechanism: Any, count: int) -> Event | None:
        """What r shares cost; None where nothing is proved.

        With k shares or more the law's own: more are post-processing. With fewer none is proved.
        """
        whole: Event = mechanism.event()
        return whole.ideal if count >= shares.honest else None


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


class _Gaussian(SharedLaw):
    """N(0, σ²/k) each."""

    floor = LEAST_SHARE

    def scale(self, mechanism: Any, honest: int) -> float:
        """s with s²k ≥ σ², for the decimal and for the binary reading of both."""
        if honest == 1:
            return float(mechanism.scale)
        share = root_up(Fraction(mechanism.scale) ** 2 / honest)
        while Fraction(share) ** 2 * honest < Fraction(mechanism.scale) ** 2:
            share = math.nextafter(share, math.inf)
        return share

    def add(
        self, shares: Split, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
    ) -> None:
        del mechanism
        if len(set(map(id, streams))) == 1:
            add_rounded_gaussian(vectors.reshape(-1), shares.scale, streams[0])
        else:
            add_rounded_gaussian_rows(vectors, shares.scale, streams)

    def add_dealt(
        self, shares: Split, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        del mechanism
        add_rounded_gaussian(total, shares.scale * math.sqrt(count), stream)

    def tail(self, shares: Split, mechanism: Any, probability: float) -> float:
        log_odds = tail_odds(mechanism.dimension, probability)
        return shares.scale * math.sqrt(2 * shares.parties * log_odds)

    def event_of(self, shares: Split, mechanism: Any, count: int) -> Event:
        # s√r, rounded down: μ = Δ/(s√r) is never less than it is.
        scale = shares.scale * math.sqrt(count) * (1 - 1e-15)
        return GaussianEvent(mu=quotient_up(mechanism.sensitivity, scale))


class _SampledGaussian(_Gaussian):
    """The same on every sum of a batch."""

    def event_of(self, shares: Split, mechanism: Any, count: int) -> Event:
        # As above: a multiplier that is rounded down.
        own = replace(mechanism, sigma=shares.scale * math.sqrt(count) * (1 - 1e-15))
        whole: Approximate = own.event()
        return whole.event


class _L2Laplace(SharedLaw):
    """(1 + b²‖t‖²)^(−(d+1)/2) is infinitely divisible; its k-th root, and a jitter."""

    coarsest = math.sqrt(LARGEST_SCALE / JITTER)

    def add(
        self, shares: Split, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
    ) -> None:
        shape = Fraction(mechanism.dimension + 1, 2 * shares.honest)
        jitter = JITTER * shares.ring_unit**2
        for rows, stream in _together(vectors, streams):
            add_rounded_mixtures(rows, shares.scale, shape, jitter, stream)

    def add_dealt(
        self, shares: Split, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        own = JITTER * shares.ring_unit**2
        # As many at a time as the sampler takes the jitter of: groups of shares add up like shares.
        most = max(int(LARGEST_SCALE / own), 1)
        for begin in range(0, count, most):
            together = min(most, count - begin)
            shape = Fraction((mechanism.dimension + 1) * together, 2 * shares.honest)
            add_rounded_mixtures(total[None, :], shares.scale, shape, own * together, stream)

    def tail(self, shares: Split, mechanism: Any, probability: float) -> float:
        exponent = shares.parties / shares.honest * (mechanism.dimension + 1) / 2
        jitter = shares.parties * JITTER * (shares.ring_unit / shares.scale) ** 2
        log_odds = tail_odds(mechanism.dimension, probability)
        return shares.scale * chernoff(exponent, log_odds, jitter)


class _DiscreteLaplace(SharedLaw):
    """The difference of two negative binomials: integers, exact."""

    rounded_after = False

    def add(
        self, shares: Split, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
    ) -> None:
        del mechanism
        for rows, stream in _together(vectors, streams):
            draws = negative_binomial(shares.scale, shares.honest, 2 * rows.size, stream)
            np.add(rows, (draws[: rows.size] - draws[rows.size :]).reshape(rows.shape), out=rows)

    def add_dealt(
        self, shares: Split, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        rows = np.zeros((count, total.size), dtype=np.int64)
        self.add(shares, mechanism, rows, [stream] * count)
        total += rows.sum(axis=0)

    def tail(self, shares: Split, mechanism: Any, probability: float) -> float:
        # (sinh(u/2t)/sinh(1/2t))² ≤ u² for 0 ≤ u ≤ 1: E e^{uz/t} ≤ (1 − u²)^(−1) of the whole.
        log_odds = tail_odds(mechanism.dimension, probability)
        return shares.scale * chernoff(shares.parties / shares.honest, log_odds)


SHARED_LAWS: dict[str, SharedLaw] = {
    "gaussian": _Gaussian(),
    "sampled-gaussian": _SampledGaussian(),
    **dict.fromkeys(("l2-laplace", "objective-perturbation"), _L2Laplace()),
    **dict.fromkeys(("laplace", "laplace-l1", "laplace-as-printed"), _DiscreteLaplace()),
}
"""Noise laws that are split into shares, by `Mechanism.law`."""
