"""Noise in shares: every party adds a share before masking, and only the shares' sum is ever seen.

A mechanism's noise z is split into k independently drawn shares. k is the minimum number of honest
shares in any sum that can be opened: t survivors minus c that collude with the server. Further
shares, including those of colluders, are independent noise: post-processing. With fewer than k
honest shares the claim would not hold, so nothing is released.

A party rounds its vector to fine units (2^h per ring unit), adds round(N(0, s²)) to the integers
and rounds to ring units. Together this is one rounding of x + N(0, s²), on cells shifted by half a
fine unit. **The sum of k such integers** is, up to factors in e^{±τ} per coordinate, a rounding of
Σx + N(0, ks²) and k − 1 uniforms (proved in docs/privacy.md): post-processing of the continuous
mechanism. For s ≥ 4 ring units, τ < 5.3·10⁻⁶⁹ for every k ≤ 2²⁰. A smaller s is refused, because
the claim would be false. e^{dτ} − 1 bounds a statistical distance, which is charged as a δ in
addition to the samplers'.

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

from parley.module_loading.plugin_table import PluginTable
from parley.privacy.accounting.privacy_events import Approximate, PrivacyEvent
from parley.privacy.accounting.rounding import check_positive
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.share_laws import MIN_SHARE, Integers, SharedLaw, ShareSplit
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import compute_rounded_distance

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
"""Noise laws that can be split into shares, by `Mechanism.law`."""


def get_shared_law(mechanism: Mechanism) -> SharedLaw:
    """Return the row of a mechanism's law.

    Raises:
        ValueError: the law has no shares; the message names the alternatives.
    """
    law = SHARED_LAWS.get(mechanism.law)
    if law is None:
        raise ValueError(
            f"Expected a noise law that is split into shares, of {', '.join(SHARED_LAWS)}, got "
            f"{mechanism.law}. Choose one of them, or set privacy.noise-point = 'server', which "
            "trusts the server with the bare sum."
        )
    return law


class Shares(ShareSplit):
    """The split of a mechanism's noise among the parties of a sum."""

    @classmethod
    def from_mechanism(cls, mechanism: Mechanism, **split: int) -> Shares:
        """Build the shares of a mechanism's noise, as in `split`, and check them."""
        shares = cls.split(mechanism, **split)
        shares.check(mechanism)
        return shares

    @classmethod
    def split(
        cls, mechanism: Mechanism, *, parties: int, least: int, colluders: int, fine_bits: int = 0
    ) -> Shares:
        """Build the shares for m parties, of which `least` survive, before the grid is known."""
        if not 0 <= colluders < least:
            raise ValueError(
                f"Expected fewer colluders than the {least} survivors of a sum, got {colluders}: "
                "a colluder knows its own share, and no noise would be left. Set a smaller "
                "secure-aggregation.corrupt or a larger min-survivors."
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
        """√(m/k): the noise of all m shares, relative to that of the k charged shares."""
        return math.sqrt(self.parties / self.honest)

    def check(self, mechanism: Mechanism) -> None:
        """Raise if the shares would not make up the mechanism's noise.

        Raises:
            ValueError: there is less noise than the mechanism claims, a share is below the floor,
                the rounding is not proved for the law, or the law has no shares.
        """
        law = get_shared_law(mechanism)
        needed = law.compute_scale(mechanism, self.honest)
        if not self.scale >= needed:  # also true for NaN
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
                f"Expected at most {law.coarsest:g} fine units per ring unit with "
                f"{mechanism.law} in shares, got {self.ring_unit:g}: the ring is too coarse for "
                "so much noise. Use a larger epsilon or parties with more records."
            )
        own = self.scale / self.ring_unit
        if law.floor and not own >= law.floor:
            finer = math.ceil(math.log2(law.floor / own))
            raise ValueError(
                f"Expected a share of at least {law.floor:g} ring units, got {own:.4g}: the sum of "
                f"such shares would not be {mechanism.law} noise. Use a grid 2^{max(finer, 1)} "
                f"times as fine: raise secure-aggregation.scale-bits by {max(finer, 1)}, or set "
                "'auto'."
            )

    def build_event(self, mechanism: Mechanism) -> PrivacyEvent:
        """Return a release's cost against the server and c colluders (`build_shares_event`)."""
        return build_shares_event(mechanism, self.parties)

    def build_partial_event(self, mechanism: Mechanism, count: int) -> PrivacyEvent | None:
        """Return the cost if only `count` shares are unknown; None if no bound is proved."""
        if not 1 <= count <= self.parties:
            raise ValueError(f"Expected 1 to {self.parties} shares, got {count}.")
        law = get_shared_law(mechanism)
        ideal = law.build_partial_event(self, mechanism, count)
        # Laws of integers add up exactly, the others approximately.
        if ideal and law.rounded_after:
            return _build_near_event(mechanism, ideal, self.parties)
        return ideal

    def compute_tail(self, mechanism: Mechanism, probability: float) -> float:
        """Return ring units that max |sum of m shares| exceeds with at most this probability.

        The bound includes rounding: half a fine and half a ring unit per party, at most one unit
        for both.
        """
        noise = get_shared_law(mechanism).compute_tail(self, mechanism, probability)
        return noise / self.ring_unit + self.parties

    def add(self, mechanism: Mechanism, vectors: Integers, streams: Sequence[NoiseStream]) -> None:
        """Add a share to every row of `vectors` `[B, d]`, fine integers, contiguous, in place.

        Rows that share a stream draw from it together.
        """
        if len(streams) != len(vectors):
            raise ValueError(f"Expected {len(vectors)} streams, one per row, got {len(streams)}.")
        get_shared_law(mechanism).add(self, mechanism, vectors, streams)

    def add_summed(
        self, mechanism: Mechanism, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        """Add one draw of the law of `count` shares' sum to `total` `[d]`, fine integers.

        It is for a simulation, in which one process plays the dealer and all others. The law is the
        same as that of `count` calls of `add`, up to e^{±dτ} and the variance of roundings, (count
        − 1)/12.
        """
        if count < 1:
            raise ValueError(f"Expected at least 1 share to add, got {count}.")
        get_shared_law(mechanism).add_summed(self, mechanism, total, count, stream)

    def round_to_ring(self, vectors: Integers) -> Integers:
        """Convert fine integers to ring units: ⌊(u + 2^(h−1))/2^h⌋."""
        if not self.fine_bits:
            return vectors
        half = np.int64(1) << np.int64(self.fine_bits - 1)
        return np.asarray((vectors + half) >> np.int64(self.fine_bits), dtype=np.int64)


def build_shares_event(mechanism: Mechanism, parties: int) -> PrivacyEvent:
    """Return the cost of a release against the server and its colluders.

    It is the cost of the law, from k shares. The distance of the sum from that law is also charged:
    every party's sampler, and e^{dτ} − 1. The charge is the same for every scale, because it is
    computed at the floor.
    """
    get_shared_law(mechanism)
    whole = mechanism.event()
    if whole.ideal is whole:
        return whole  # sampled and summed exactly
    return _build_near_event(mechanism, whole.ideal, parties)


def _build_near_event(mechanism: Mechanism, ideal: PrivacyEvent, parties: int) -> PrivacyEvent:
    draws = mechanism.dimension * mechanism.sums * mechanism.vectors
    samplers = compute_rounded_distance(draws * parties)
    # `Shares.check` and the jitter ensure at least this variance of each share, in ring units.
    sums = math.expm1(draws * compute_tau(MIN_SHARE**2, parties))
    return Approximate(event=ideal, delta=(samplers + sums) * (1 + 1e-12))


@lru_cache(maxsize=64)
def compute_tau(variance: float, shares: int) -> float:
    """Return τ of k = `shares` rounded Gaussians of this variance (in squared rounding units).

    τ = Σ_{1≤j<k} −ln(1 − η_j), η_j = 2·Σ_{l≥1} exp(−2π²l²·v·j/(j+1)). The sum's masses are within
    e^{±τ} of those of the rounding of N(0, kv) and k − 1 uniforms. τ is ∞ if some η_j is at least
    1.
    """
    check_positive("variance", variance)
    if shares < 1:
        raise ValueError(f"Expected shares ≥ 1, got {shares}.")

    def term(j: int) -> float:
        rate = 2 * math.pi**2 * variance * j / (j + 1)
        eta = 2 * math.fsum(math.exp(-rate * i * i) for i in range(1, 2 + math.ceil(7 / rate**0.5)))
        return -math.log1p(-eta) if eta < 1 else math.inf

    exact = math.fsum(term(j) for j in range(1, min(shares, _EXACT_TERMS)))
    # Terms decrease in j, so each of the rest is at most the last one.
    rest = max(shares - _EXACT_TERMS, 0)
    return exact + rest * term(_EXACT_TERMS) if rest else exact
