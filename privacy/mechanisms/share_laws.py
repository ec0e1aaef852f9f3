"""The split of a noise law into shares, and the split of the Gaussian.

`parley.privacy.mechanisms.noise_shares` defines shares and explains why their sum has the law.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.privacy_events import Approximate, GaussianEvent, PrivacyEvent
from parley.privacy.accounting.rounding import (
    check_positive,
    check_whole,
    round_quotient_up,
    round_root_up,
)
from parley.privacy.mechanisms.base import compute_tail_odds
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import add_rounded_gaussian, add_rounded_gaussian_rows

MIN_SHARE: Final = 4.0
"""Minimum deviation of a Gaussian share, in ring units; below it the theorem is too weak."""


_MAX_SHARES: Final = 2**20

Integers = NDArray[np.int64]
Streams = Sequence[NoiseStream]


@dataclass(frozen=True, kw_only=True)
class ShareSplit:
    """Numbers of a noise that is split among the parties of a sum, for `noise_shares.Shares`.

    The mechanism's numbers are in fine units, 2^`fine_bits` per unit of the ring.

    Attributes:
        parties: m; the ring has room for this many shares.
        honest: k, the number of shares that make up the mechanism's noise.
        colluders: c, parties that may reveal theirs to the server; at least t = k + c survive.
        scale: of one share, in fine units: s of a Gaussian, b or t of a Laplace.
        fine_bits: h, the number of bits that a party drops after adding its share.
    """

    parties: int
    honest: int
    colluders: int
    scale: float
    fine_bits: int = 0

    def __post_init__(self) -> None:
        for name, least in {"parties": 1, "honest": 1, "colluders": 0, "fine_bits": 0}.items():
            check_whole(name, getattr(self, name), least)
        if not self.min_contributions <= self.parties <= _MAX_SHARES:
            raise ValueError(
                "Expected k ≥ 1 honest shares, c ≥ 0 colluders and k + c ≤ m ≤ 2^20 parties, got "
                f"k = {self.honest}, c = {self.colluders}, m = {self.parties}."
            )
        if self.fine_bits > 60:
            raise ValueError(f"Expected at most 60 fine bits, got {self.fine_bits}.")
        check_positive("the scale of a share", self.scale)

    @property
    def min_contributions(self) -> int:
        """t = k + c: minimum number of contributions to a sum that may be opened."""
        return self.honest + self.colluders

    @property
    def ring_unit(self) -> float:
        """Fine units per unit of the ring."""
        return 2.0**self.fine_bits


class SharedLaw(ABC):
    """The split of one noise law; an instance is a row of `SHARED_LAWS`.

    Attributes:
        rounded_after: whether a party may round to a coarser grid after adding its share.
        floor: minimum scale of a share, in ring units; 0 for none.
        coarsest: maximum number of fine units per ring unit that its sampler accepts.
    """

    rounded_after: bool = True
    floor: float = 0.0
    coarsest: float = math.inf

    def compute_scale(self, mechanism: Any, honest: int) -> float:
        """Return the minimum scale of one share of k, in fine units, rounded up."""
        return float(mechanism.scale)

    @abstractmethod
    def add(self, shares: ShareSplit, mechanism: Any, vectors: Integers, streams: Streams) -> None:
        """Add a share to each row of `[B, d]`."""

    @abstractmethod
    def add_summed(
        self, shares: ShareSplit, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        """Add r shares to `[d]` in one draw."""

    @abstractmethod
    def compute_tail(self, shares: ShareSplit, mechanism: Any, probability: float) -> float:
        """Return a bound on |Σ of m shares| in fine units that fails with probability p."""

    def build_partial_event(
        self, shares: ShareSplit, mechanism: Any, count: int
    ) -> PrivacyEvent | None:
        """Return the cost with r shares; None if no bound is proved.

        With at least k shares it is the law's cost: further shares are post-processing. With fewer,
        no bound is proved.
        """
        whole: PrivacyEvent = mechanism.event()
        return whole.ideal if count >= shares.honest else None


class _Gaussian(SharedLaw):
    """Shares of N(0, σ²/k) each."""

    floor = MIN_SHARE

    def compute_scale(self, mechanism: Any, honest: int) -> float:
        """Return s with s²k ≥ σ², for the decimal and for the binary reading of both."""
        if honest == 1:
            return float(mechanism.scale)
        share = round_root_up(Fraction(mechanism.scale) ** 2 / honest)
        while Fraction(share) ** 2 * honest < Fraction(mechanism.scale) ** 2:
            share = math.nextafter(share, math.inf)
        return share

    def add(self, shares: ShareSplit, mechanism: Any, vectors: Integers, streams: Streams) -> None:
        if len(set(map(id, streams))) == 1:
            add_rounded_gaussian(vectors.reshape(-1), shares.scale, streams[0])
        else:
            add_rounded_gaussian_rows(vectors, shares.scale, streams)

    def add_summed(
        self, shares: ShareSplit, mechanism: Any, total: Integers, count: int, stream: NoiseStream
    ) -> None:
        add_rounded_gaussian(total, shares.scale * math.sqrt(count), stream)

    def compute_tail(self, shares: ShareSplit, mechanism: Any, probability: float) -> float:
        log_odds = compute_tail_odds(mechanism.dimension, probability)
        return shares.scale * math.sqrt(2 * shares.parties * log_odds)

    def build_partial_event(self, shares: ShareSplit, mechanism: Any, count: int) -> PrivacyEvent:
        # s√r, rounded down, so that μ = Δ/(s√r) is never below its true value.
        scale = shares.scale * math.sqrt(count) * (1 - 1e-15)
        return GaussianEvent(mu=round_quotient_up(mechanism.sensitivity, scale))


class _SampledGaussian(_Gaussian):
    """Gaussian shares on every sum of a batch."""

    def build_partial_event(self, shares: ShareSplit, mechanism: Any, count: int) -> PrivacyEvent:
        # As above, the multiplier is rounded down.
        own = replace(mechanism, sigma=shares.scale * math.sqrt(count) * (1 - 1e-15))
        whole: Approximate = own.event()
        return whole.event


GAUSSIAN = _Gaussian()
SAMPLED_GAUSSIAN = _SampledGaussian()
