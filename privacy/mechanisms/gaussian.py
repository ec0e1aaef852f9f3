"""Gaussian noise, rounded to integers, with the exact curve; and the base of both Gaussian laws.

>>> noise = Gaussian(sensitivity=1.0, sigma=20.0, dimension=4)
>>> noise.event().event, noise.expected_norm()
(GaussianEvent(mu=0.05), 40.0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from parley.privacy.accounting.privacy_events import Approximate, GaussianEvent, PrivacyEvent
from parley.privacy.accounting.rounding import check_positive, round_quotient_up
from parley.privacy.mechanisms.base import Mechanism, compute_normal_tail
from parley.privacy.sampling.rounded_gaussian import compute_rounded_distance, draw_rounded_gaussian

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.privacy.sampling.random_stream import NoiseStream


@dataclass(frozen=True, kw_only=True)
class GaussianLaw(Mechanism):
    """A law scaled by σ > 0, in the unit of the sensitivity."""

    lengths: ClassVar[tuple[str, ...]] = ("sensitivity", "sigma")

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("sigma", self.sigma)

    @property
    def scale(self) -> float:
        """σ of every coordinate."""
        return self.sigma

    def expected_norm(self) -> float:
        """Return √d·σ; an upper bound if discrete (Canonne et al. 2020, Corollary 9)."""
        return math.sqrt(self.dimension) * self.sigma

    def noise_tail(self, probability: float) -> float:
        """Return σ√(2·ln(2d/p)); both laws are sub-Gaussian."""
        return compute_normal_tail(self.sigma, self.dimension, probability)


class Gaussian(GaussianLaw):
    """Rounded Gaussian: round(N(0, σ²I)) added to an integer sum of L2 sensitivity Δ.

    It is post-processing of the continuous mechanism, so the exact curve of μ = Δ/σ holds (Balle &
    Wang 2018, Theorem 8). Its event has μ, ρ = μ²/2, and the sampler's distance as δ. Replace-one.
    """

    law: ClassVar[str] = "gaussian"
    has_sampler_distance: ClassVar[bool] = True
    calibrations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"exact": "exact", "zcdp": "zcdp", "cks20": "cks20", "as-printed": "exact"}
    )

    def event(self) -> PrivacyEvent:
        """Return the event with μ = Δ/σ, rounded up."""
        mu = round_quotient_up(self.sensitivity, self.sigma)
        distance = compute_rounded_distance(self.dimension)
        return Approximate(event=GaussianEvent(mu=mu), delta=distance)

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[count, d]` rounded Gaussian values; raise ValueError for σ outside [2⁻²⁰, 2⁴⁰]."""
        drawn = draw_rounded_gaussian(self.sigma, count * self.dimension, stream)
        return drawn.reshape(count, self.dimension)

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        return (
            f"Gaussian noise of standard deviation {self.sigma:.6g} in each of "
            f"{self.dimension} coordinates, rounded to the grid and added once to the sum."
        )
