"""Noise in shares: every party adds one before it masks, and only their sum is ever seen.

A mechanism's noise z is split into k shares that are drawn independently; k is the least number of
honest ones in any sum that can be opened, t survivors less c that collude with the server. Further
shares, those of colluders too, are independent noise: post-processing. With fewer than k the claim
is void, so nothing is released then.

| law | a share | rounded after it | floor |
|---|---|---|---|
| gaussian, sampled-gaussian | N(0, σ²/k) | yes | 4 ring units |
| l2-laplace | √(2Vb² + w)·N(0, I), V ~ Gamma((d+1)/(2k)) | yes | the jitter w, 4² |
| laplace-l1, laplace-as-printed | difference of two NegativeBinomial(1/k, e^(−1/t)) | no | none |

A party rounds its vector to fine units (2^h to a ring unit), adds round(N(0, s²)) to the integers
and rounds to ring units: together one rounding of x + N(0, s²), on cells moved by half a fine
unit. **The sum of k such integers** is, up to factors in e^{±τ} a coordinate, a rounding of
Σx + N(0, ks²) and k − 1 uniforms (docs/privacy.md proves it): post-processing of the continuous
mechanism. From s ≥ 4 ring units on, τ < 5.3·10⁻⁶⁹ for every k ≤ 2²⁰; below, the claim would be
false and is refused. e^{dτ} − 1 bounds a statistical distance, which is charged as
a δ beside the samplers'.

>>> from parley.privacy.mechanisms.gaussian import Gaussian
>>> noise = Gaussian(sensitivity=1.0, sigma=100.0, dimension=4)
>>> shares = Shares.of(noise, parties=10, least=9, colluders=1)
>>> shares.honest, round(shares.scale, 4), round(shares.inflation, 6)
(8, 35.3553, 1.118034)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.events import Approximate, Event
from parley.privacy.accounting.events import Gaussian as GaussianEvent
from parley.privacy.accounting.rounding import check_positive, quotient_up, root_up
from parley.privacy.mechanisms.base import Mechanism, check_probability
from parley.privacy.sampling.negative_binomial import negative_binomial
from parley.privacy.sampling.samplers import (
    add_rounded_gaussian,
    add_rounded_mixture,
    rounded_gaussian_distance,
)
from parley.privacy.sampling.stream import NoiseStream

__all__ = ["JITTER", "LEAST_SHARE", "SHARED_LAWS", "SharedLaw", "Shares", "event_of_shares", "tau"]

LEAST_SHARE: Final = 4.0
"""Least standard deviation of a Gaussian share, in ring units: below, the theorem says little."""

JITTER: Final = 16.0
"""w: variance of what is added to a share of l2-laplace, in ring units squared."""

_MOST_SHARES: Final = 2**20
_EXACT_TERMS: Final = 256

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """How a mechanism's noise is split among the parties of a sum.

    The mechanism's own numbers are in fine units, 2^`fine_bits` to a unit of the ring.

    Attributes:
        parties: m; the ring has room for as many shares.
        honest: k, shares that make up the mechanism's noise.
        colluders: c, parties that may give theirs to the server; t = k + c survive at least.
        scale: of one share, in fine units: s of a Gaussian, b or t of a Laplace.
        fine_bits: h, bits that a party drops after it added its share.

    Raises:
        ValueError: out of range, or k + c above m.
    """

    parties: int
    honest: int
    colluders: int
    scale: float
    fine_bits: int = 0

    def __post_init__(self) -> None:
        for name, value in (
            ("parties", self.parties),
            ("honest", self.honest),
            ("colluders", self.colluders),
            ("fine_bits", self.fine_bits),
        ):
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

    @classmethod
    def of(
        cls, mechanism: Mechanism, *, parties: int, least: int, colluders: int, fine_bits: int = 0
    ) -> Shares:
        """The shares of a mechanism's noise among m parties, of which `least` survive.

        Raises:
            ValueError: c ≥ t, a law without shares, or shares below the floor.
        """
        shares = cls.split(
            mechanism, parties=parties, least=least, colluders=colluders, fine_bits=fine_bits
        )
        shares.check(mechanism)
        return shares

    @classmethod
    def split(
        cls, mechanism: Mechanism, *, parties: int, least: int, colluders: int, fine_bits: int = 0
    ) -> Shares:
        """The same before `check`: for a grid that is still to be found.

        Raises:
            ValueError: c ≥ t, or a law without shares.
        """
        if not 0 <= colluders < least:
            raise ValueError(
                f"Expected fewer colluders than the {least} survivors of a sum, got {colluders}: "
                "who colludes knows its own share, and no noise would be left. A smaller "
                "secure-aggregation.corrupt or a larger min-survivors helps."
            )
        honest = least - colluders
        return cls(
            parties=parties,
            honest=honest,
            colluders=colluders,
            scale=_law_of(mechanism).scale(mechanism, honest),
            fine_bits=fine_bits,
        )

    @property
    def least(self) -> int:
        """t = k + c: contributions without which nothing may be opened."""
        return self.honest + self.colluders

    @property
    def inflation(self) -> float:
        """√(m/k): the noise of all m shares over that of the k that are charged."""
        return math.sqrt(self.parties / self.honest)

    @property
    def ring_unit(self) -> float:
        """Fine units to a unit of the ring."""
        return 2.0**self.fine_bits

    def check(self, mechanism: Mechanism) -> None:
        """Refuses shares that would not make up the mechanism's noise.

        Raises:
            ValueError: less noise than the mechanism claims, shares below the floor, rounding
                that is not proved for the law, a law without shares.
        """
        law = _law_of(mechanism)
        needed = law.scale(mechanism, self.honest)
        if not self.scale >= needed:  # NaN is not
            raise ValueError(
                f"Expected shares of at least {needed:.9g}, of which {self.honest} make up "
                f"{mechanism.law} noise of scale {mechanism.scale:.9g}, got {self.scale:.9g}."
            )
        if self.fine_bits and not law.rounded_after:
            raise ValueError(
                f"Expected no rounding after the shares of {mechanism.law}, which is not proved "
                f"for it, got {self.fine_bits} bits."
            )
        own = self.scale / self.ring_unit
        if law.floor and not own >= law.floor:
            finer = math.ceil(math.log2(law.floor / own))
            raise ValueError(
                f"Expected a share of at least {law.floor:g} ring units, got {own:.4g}: its sum "
                f"with others would not be {mechanism.law} noise. A grid 2^{max(finer, 1)} times "
                "as fine gives it: secure-aggregation.scale-bits larger by "
                f"{max(finer, 1)}, or 'auto'."
            )

    def event(self, mechanism: Mechanism) -> Event:
        """What a release costs against the server and c colluders: the law's own, of k shares.

        The distance of the sum from that law is charged: of every party's sampler, and e^{dτ} − 1.
        """
        return event_of_shares(mechanism, self.parties)

    def event_of(self, mechanism: Mechanism, count: int) -> Event | None:
        """The same where `count` shares are unknown; None where no bound is proved.

        Raises:
            ValueError: not 1 ≤ count ≤ m.
        """
        if not 1 <= count <= self.parties:
            raise ValueError(f"Expected 1 to {self.parties} shares, got {count}.")
        law = _law_of(mechanism)
        ideal = law.event_of(self, mechanism, count)
        # Laws of integers add up exactly; the others come near.
        return _near(mechanism, ideal, self.parties) if ideal and law.rounded_after else ideal

    def tail(self, mechanism: Mechanism, probability: float) -> float:
        """Ring units that max |sum of m shares| exceeds with at most this probability.

        Rounding included: half a fine and half a ring unit a party, and one more for both.

        Raises:
            ValueError: not 0 < probability < 1.
        """
        check_probability(probability)
        noise = _law_of(mechanism).tail(self, mechanism, probability)
        return noise / self.ring_unit + self.parties

    def add(self, mechanism: Mechanism, vectors: Integers, streams: Sequence[NoiseStream]) -> None:
        """Adds a share to every row of `vectors` `[B, d]`, fine integers, in place.

        Args:
            mechanism: whose shares.
            vectors: contiguous.
            streams: a stream a row. Rows that share one draw from it in turn, in one call where
                the law allows it.
        """
        if len(streams) != len(vectors):
            raise ValueError(f"Expected {len(vectors)} streams, one a row, got {len(streams)}.")
        _law_of(mechanism).add(self, mechanism, vectors, streams)

    def add_dealt(
        self, mechanism: Mechanism, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        """Adds one draw of the law of `count` shares' sum to `total` `[d]`, fine integers.

        For a simulation, where one process is the dealer and everyone else: the same law as
        `count` calls of `add`, up to e^{±dτ} and the variance of roundings, (count − 1)/12.
        """
        if count < 1:
            raise ValueError(f"Expected count ≥ 1 shares to deal, got {count}.")
        _law_of(mechanism).add_dealt(self, mechanism, total, count, stream)

    def rounded(self, vectors: Integers) -> Integers:
        """Ring units of fine integers: ⌊(u + 2^(h−1))/2^h⌋."""
        if not self.fine_bits:
            return vectors
        half = np.int64(1) << np.int64(self.fine_bits - 1)
        return np.asarray((vectors + half) >> np.int64(self.fine_bits), dtype=np.int64)


def event_of_shares(mechanism: Mechanism, parties: int) -> Event:
    """What a release costs whose noise is the mechanism's, in shares among so many parties.

    Its distance from the ideal law is the same for every scale: it is counted at the floor.

    Raises:
        ValueError: a law without shares.
    """
    _law_of(mechanism)
    whole = mechanism.event()
    if not isinstance(whole, Approximate):
        return whole  # sampled exactly, and summed exactly
    return _near(mechanism, whole.event, parties)


def _near(mechanism: Mechanism, ideal: Event, parties: int) -> Event:
    draws = mechanism.dimension * mechanism.sums
    samplers = rounded_gaussian_distance(draws * parties)
    # No share has less variance than this, in ring units: `Shares.check`, and the jitter.
    sums = math.expm1(draws * tau(LEAST_SHARE**2, parties))
    return Approximate(event=ideal, delta=(samplers + sums) * (1 + 1e-12))


@lru_cache(maxsize=64)
def tau(variance: float, shares: int) -> float:
    """τ of k = `shares` rounded Gaussians of this variance, in units of their rounding, squared.

    τ = Σ_{1≤j<k} −ln(1 − η_j), η_j = 2·Σ_{l≥1} exp(−2π²l²·v·j/(j+1)): the sum's masses are within
    e^{±τ} of those of the rounding of N(0, kv) and k − 1 uniforms. ∞ where an η_j is 1 or more.

    >>> f"{tau(1.0, 2):.6e} {tau(16.0, 1000):.6e}"
    '1.034517e-04 5.248006e-69'
    """
    check_positive("variance", variance)
    if shares < 1:
        raise ValueError(f"Expected shares ≥ 1, got {shares}.")

    def term(j: int) -> float:
        rate = 2 * math.pi**2 * variance * j / (j + 1)
        eta = 2 * math.fsum(math.exp(-rate * i * i) for i in range(1, 2 + math.ceil(7 / rate**0.5)))
        return -math.log1p(-eta) if eta < 1 else math.inf

    exact = math.fsum(term(j) for j in range(1, min(shares, _EXACT_TERMS)))
    # Terms decrease in j: each of the rest is at most the last one.
    rest = max(shares - _EXACT_TERMS, 0)
    return exact + rest * term(_EXACT_TERMS) if rest else exact


@dataclass(frozen=True, kw_only=True)
class SharedLaw:
    """How one noise law is split; a row of `SHARED_LAWS`.

    Attributes:
        rounded_after: whether a party may round to a coarser grid after it added its share.
        floor: least scale of a share, in ring units; 0 for none.
        scale: mechanism, k → least scale of one share, in fine units, rounded up.
        add: shares, mechanism, `[B, d]`, streams: adds a share to each row.
        add_dealt: shares, mechanism, `[d]`, r, stream: adds r shares in one draw.
        tail: shares, mechanism, p → bound on |Σ of m shares| in fine units, but with probability p.
        event_of: shares, mechanism, r → what r shares cost; None where nothing is proved.
    """

    rounded_after: bool
    floor: float
    scale: Callable[[Any, int], float]
    add: Callable[[Shares, Any, Integers, Sequence[NoiseStream]], None]
    add_dealt: Callable[[Shares, Any, Integers, int, NoiseStream], None]
    tail: Callable[[Shares, Any, float], float]
    event_of: Callable[[Shares, Any, int], Event | None]


def _law_of(mechanism: Mechanism) -> SharedLaw:
    law = SHARED_LAWS.get(mechanism.law)
    if law is None:
        raise ValueError(
            f"Expected a noise law that is split into shares, of {', '.join(SHARED_LAWS)}, got "
            f"{mechanism.law}: choose one of them, or privacy.noise-point = 'server', which trusts "
            "the server with the bare sum."
        )
    return law


# Gaussian: N(0, σ²/k) each.


def _gaussian_scale(mechanism: Any, honest: int) -> float:
    """s with s²k ≥ σ², for the decimal and for the binary reading of both."""
    if honest == 1:
        return float(mechanism.scale)
    share = root_up(Fraction(mechanism.scale) ** 2 / honest)
    while Fraction(share) ** 2 * honest < Fraction(mechanism.scale) ** 2:
        share = math.nextafter(share, math.inf)
    return share


def _gaussian_add(
    shares: Shares, _: Any, vectors: Integers, streams: Sequence[NoiseStream]
) -> None:
    if streams and all(stream is streams[0] for stream in streams):
        add_rounded_gaussian(vectors.reshape(-1), shares.scale, streams[0])
        return
    for row, stream in zip(vectors, streams, strict=True):
        add_rounded_gaussian(row, shares.scale, stream)


def _gaussian_dealt(
    shares: Shares, _: Any, total: Integers, count: int, stream: NoiseStream
) -> None:
    add_rounded_gaussian(total, shares.scale * math.sqrt(count), stream)


def _gaussian_tail(shares: Shares, mechanism: Any, probability: float) -> float:
    log_odds = math.log(2 * mechanism.dimension) - math.log(probability)
    return shares.scale * math.sqrt(2 * shares.parties * log_odds)


def _gaussian_event(shares: Shares, mechanism: Any, count: int) -> Event:
    # s√r, rounded down: μ = Δ/(s√r) is never less than it is.
    scale = shares.scale * math.sqrt(count) * (1 - 1e-15)
    return GaussianEvent(mu=quotient_up(mechanism.sensitivity, scale))


def _sampled_event(shares: Shares, mechanism: Any, count: int) -> Event:
    # As above: a multiplier that is rounded down.
    own = replace(mechanism, sigma=shares.scale * math.sqrt(count) * (1 - 1e-15))
    whole: Approximate = own.event()
    return whole.event


# l2-laplace: (1 + b²‖t‖²)^(−(d+1)/2) is infinitely divisible; its k-th root, and a jitter.


def _l2_add(
    shares: Shares, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
) -> None:
    shape = Fraction(mechanism.dimension + 1, 2 * shares.honest)
    jitter = JITTER * shares.ring_unit**2
    for row, stream in zip(vectors, streams, strict=True):
        add_rounded_mixture(row, shares.scale, shape, jitter, stream)


def _l2_dealt(
    shares: Shares, mechanism: Any, total: Integers, count: int, stream: NoiseStream
) -> None:
    shape = Fraction((mechanism.dimension + 1) * count, 2 * shares.honest)
    jitter = JITTER * count * shares.ring_unit**2
    add_rounded_mixture(total, shares.scale, shape, jitter, stream)


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


def _l2_tail(shares: Shares, mechanism: Any, probability: float) -> float:
    log_odds = math.log(2 * mechanism.dimension) - math.log(probability)
    exponent = shares.parties / shares.honest * (mechanism.dimension + 1) / 2
    jitter = shares.parties * JITTER * (shares.ring_unit / shares.scale) ** 2
    return shares.scale * _chernoff(exponent, log_odds, jitter)


# Discrete Laplace: the difference of two negative binomials, integers, exact.


def _discrete_add(
    shares: Shares, mechanism: Any, vectors: Integers, streams: Sequence[NoiseStream]
) -> None:
    del mechanism
    size = vectors.shape[1]
    for row, stream in zip(vectors, streams, strict=True):
        draws = negative_binomial(shares.scale, shares.honest, 2 * size, stream)
        np.add(row, draws[:size] - draws[size:], out=row)


def _discrete_dealt(
    shares: Shares, mechanism: Any, total: Integers, count: int, stream: NoiseStream
) -> None:
    rows = np.zeros((count, total.size), dtype=np.int64)
    _discrete_add(shares, mechanism, rows, [stream] * count)
    total += rows.sum(axis=0)


def _discrete_tail(shares: Shares, mechanism: Any, probability: float) -> float:
    # (sinh(u/2t)/sinh(1/2t))² ≤ u² for 0 ≤ u ≤ 1: E e^{uz/t} ≤ (1 − u²)^(−1) of the whole.
    log_odds = math.log(2 * mechanism.dimension) - math.log(probability)
    return shares.scale * _chernoff(shares.parties / shares.honest, log_odds)


def _while_whole(shares: Shares, mechanism: Any, count: int) -> Event | None:
    """With k shares or more the law's own: more are post-processing. With fewer none is proved."""
    whole: Event = mechanism.event()
    ideal = whole.event if isinstance(whole, Approximate) else whole
    return ideal if count >= shares.honest else None


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

SHARED_LAWS: dict[str, SharedLaw] = {
    "gaussian": _GAUSSIAN,
    "sampled-gaussian": replace(_GAUSSIAN, event_of=_sampled_event),
    "l2-laplace": SharedLaw(
        rounded_after=True,
        floor=0.0,
        scale=_own_scale,
        add=_l2_add,
        add_dealt=_l2_dealt,
        tail=_l2_tail,
        event_of=_while_whole,
    ),
    "laplace-l1": _DISCRETE,
    "laplace-as-printed": _DISCRETE,
}
"""Noise laws that are split into shares, by `Mechanism.law`."""
