"""Noise in shares: every party adds one before it masks, and only their sum is ever seen.

A mechanism's noise z is split into k shares that are drawn independently; k is the least number of
honest ones in any sum that can be opened, t survivors less c that collude with the server. Further
shares, those of colluders too, are independent noise: post-processing. With fewer than k the claim
is void, so nothing is released then.

A party rounds its vector to fine units (2^h to a ring unit), adds round(N(0, s²)) to the integers
and rounds to ring units: together one rounding of x + N(0, s²), on cells moved by half a fine
unit. **The sum of k such integers** is, up to factors in e^{±τ} a coordinate, a rounding of
Σx + N(0, ks²) and k − 1 uniforms (docs/privacy.md proves it): post-processing of the continuous
mechanism. From s ≥ 4 ring units on, τ < 5.3·10⁻⁶⁹ for every k ≤ 2²⁰; below, the claim would be
false and is refused. e^{dτ} − 1 bounds a statistical distance, which is charged as
a δ beside the samplers'.

>>> from parley.privacy.mechanisms.gaussian import Gaussian
>>> noise = Gaussian(sensitivity=1.0, sigma=100.0, dimension=4)
>>> shares = Shares.from_mechanism(noise, parties=10, least=9, colluders=1)
>>> shares.honest, round(shares.scale, 4), round(shares.noise_ratio, 6)
(8, 35.3553, 1.118034)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from parley.privacy.accounting.privacy_events import Approximate, PrivacyEvent
from parley.privacy.accounting.rounding import check_positive
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.share_laws import MIN_SHARE, Integers, SharedLaw, ShareSplit
from parley.privacy.sampling.gaussian import compute_rounded_distance
from parley.privacy.sampling.random_stream import NoiseStream
from parley.safe_io.plugin_table import PluginTable

_EXACT_TERMS: Final = 256


SHARED_LAWS = PluginTable[SharedLaw](
    {
        "gaussian": "parley.privacy.mechanisms.share_laws:GAUSSIAN",
        "sampled-gaussian": "parley.privacy.mechanisms.share_laws:SAMPLED_GAUSSIAN",
        "l2-laplace": "parley.privacy.mechanisms.laplace_shares:L2_LAPLACE",
        "objective-perturbation": "parley.privacy.mechanisms.laplace_shares:L2_LAPLACE",
        "laplace": "parley.privacy.mechanisms.laplace_shares:DISCRETE_LAPLACE",
        "laplace-l1": "parley.privacy.mechanisms.laplace_shares:DISCRETE_LAPLACE",
        "laplace-as-printed": "parley.privacy.mechanisms.laplace_shares:DISCRETE_LAPLACE",
    }
)
"""Noise laws that are split into shares, by `Mechanism.law`."""


def get_shared_law(mechanism: Mechanism) -> SharedLaw:
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


class Shares(ShareSplit):
    """How a mechanism's noise is split among the parties of a sum."""

    @classmethod
    def from_mechanism(cls, mechanism: Mechanism, **split: int) -> Shares:
        """The shares of a mechanism's noise, as of `split`, checked."""
        shares = cls.split(mechanism, **split)
        shares.check(mechanism)
        return shares

    @classmethod
    def split(
        cls, mechanism: Mechanism, *, parties: int, least: int, colluders: int, fine_bits: int = 0
    ) -> Shares:
        """Those among m parties, of which `least` survive, for a grid that is still to be found."""
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
            scale=get_shared_law(mechanism).compute_scale(mechanism, honest),
            fine_bits=fine_bits,
        )

    @property
    def noise_ratio(self) -> float:
        """√(m/k): the noise of all m shares over that of the k that are charged."""
        return math.sqrt(self.parties / self.honest)

    def check(self, mechanism: Mechanism) -> None:
        """Refuses shares that would not make up the mechanism's noise.

        Raises:
            ValueError: less noise than the mechanism claims, shares below the floor, rounding
                that is not proved for the law, a law without shares.
        """
        law = get_shared_law(mechanism)
        needed = law.compute_scale(mechanism, self.honest)
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
        if not self.ring_unit <= law.coarsest:
            raise ValueError(
                f"Expected at most {law.coarsest:g} fine units to a ring unit with "
                f"{mechanism.law} in shares, got {self.ring_unit:g}: the ring is too coarse for "
                "noise as large as this. A larger epsilon, or parties with more records, help."
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

    def build_event(self, mechanism: Mechanism) -> PrivacyEvent:
        """What a release costs against the server and c colluders (`build_shares_event`)."""
        return build_shares_event(mechanism, self.parties)

    def build_partial_event(self, mechanism: Mechanism, count: int) -> PrivacyEvent | None:
        """The same where `count` shares are unknown; None where no bound is proved."""
        if not 1 <= count <= self.parties:
            raise ValueError(f"Expected 1 to {self.parties} shares, got {count}.")
        law = get_shared_law(mechanism)
        ideal = law.build_partial_event(self, mechanism, count)
        # Laws of integers add up exactly; the others come near.
        return (
            _build_near_event(mechanism, ideal, self.parties)
            if ideal and law.rounded_after
            else ideal
        )

    def compute_tail(self, mechanism: Mechanism, probability: float) -> float:
        """Ring units that max |sum of m shares| exceeds with at most this probability.

        Rounding included: half a fine and half a ring unit a party, and one more for both.
        """
        noise = get_shared_law(mechanism).compute_tail(self, mechanism, probability)
        return noise / self.ring_unit + self.parties

    def add(self, mechanism: Mechanism, vectors: Integers, streams: Sequence[NoiseStream]) -> None:
        """Adds a share to every row of `vectors` `[B, d]`, fine integers, contiguous, in place.

        Rows that share a stream draw from it together.
        """
        if len(streams) != len(vectors):
            raise ValueError(f"Expected {len(vectors)} streams, one a row, got {len(streams)}.")
        get_shared_law(mechanism).add(self, mechanism, vectors, streams)

    def add_summed(
        self, mechanism: Mechanism, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        """Adds one draw of the law of `count` shares' sum to `total` `[d]`, fine integers.

        For a simulation, where one process is the dealer and everyone else: the same law as
        `count` calls of `add`, up to e^{±dτ} and the variance of roundings, (count − 1)/12.
        """
        if count < 1:
            raise ValueError(f"Expected count ≥ 1 shares to deal, got {count}.")
        get_shared_law(mechanism).add_summed(self, mechanism, total, count, stream)

    def round_to_ring(self, vectors: Integers) -> Integers:
        """Ring units of fine integers: ⌊(u + 2^(h−1))/2^h⌋."""
        if not self.fine_bits:
            return vectors
        half = np.int64(1) << np.int64(self.fine_bits - 1)
        return np.asarray((vectors + half) >> np.int64(self.fine_bits), dtype=np.int64)


def build_shares_event(mechanism: Mechanism, parties: int) -> PrivacyEvent:
    """What a release costs against the server and its colluders: the law's own, of k shares.

    The distance of the sum from that law is charged: of every party's sampler, and e^{dτ} − 1. It
    is the same for every scale: it is counted at the floor.
    """
    get_shared_law(mechanism)
    whole = mechanism.event()
    if whole.ideal is whole:
        return whole  # sampled exactly, and summed exactly
    return _build_near_event(mechanism, whole.ideal, parties)


def _build_near_event(mechanism: Mechanism, ideal: PrivacyEvent, parties: int) -> PrivacyEvent:
    draws = mechanism.dimension * mechanism.sums * mechanism.vectors
    samplers = compute_rounded_distance(draws * parties)
    # No share has less variance than this, in ring units: `Shares.check`, and the jitter.
    sums = math.expm1(draws * compute_tau(MIN_SHARE**2, parties))
    return Approximate(event=ideal, delta=(samplers + sums) * (1 + 1e-12))


@lru_cache(maxsize=64)
def compute_tau(variance: float, shares: int) -> float:
    """τ of k = `shares` rounded Gaussians of this variance, in units of their rounding, squared.

    τ = Σ_{1≤j<k} −ln(1 − η_j), η_j = 2·Σ_{l≥1} exp(−2π²l²·v·j/(j+1)): the sum's masses are within
    e^{±τ} of those of the rounding of N(0, kv) and k − 1 uniforms. ∞ where an η_j is 1 or more.
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
