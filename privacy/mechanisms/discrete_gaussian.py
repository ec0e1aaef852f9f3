"""Discrete Gaussian noise: integers, sampled exactly, with a zCDP guarantee.

>>> discrete = DiscreteGaussian(sensitivity=1.0, sigma=20.0, dimension=4)
>>> discrete.event()
Zcdp(rho=0.00125)
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from parley.privacy.accounting.privacy_events import PrivacyEvent, Zcdp
from parley.privacy.accounting.rounding import round_up, to_fraction
from parley.privacy.mechanisms.gaussian import GaussianLaw
from parley.privacy.sampling.discrete_noise import discrete_gaussian

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.privacy.sampling.random_stream import NoiseStream


class DiscreteGaussian(GaussianLaw):
    """Discrete Gaussian: P[z_i = k] ∝ exp(−k²/(2σ²)) in each coordinate, sampled exactly.

    ρ = Δ²/(2σ²) exactly, in any dimension (Canonne, Kamath & Steinke 2020, Theorem 14). The exact
    Gaussian curve is not proved for it, so its event has ρ and no μ. Replace-one.
    """

    law: ClassVar[str] = "discrete-gaussian"
    calibrations: ClassVar[Mapping[str, str]] = MappingProxyType({"zcdp": "zcdp", "cks20": "cks20"})

    def event(self) -> PrivacyEvent:
        """Return the event with ρ = Δ²/(2σ²), rounded up."""
        ratio = to_fraction(self.sensitivity) / min(to_fraction(self.sigma), Fraction(self.sigma))
        return Zcdp(rho=round_up(ratio**2 / 2))

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[count, d]` discrete Gaussians; raise ValueError for σ outside [2⁻²⁰, 2⁴⁰]."""
        drawn = discrete_gaussian(self.sigma, count * self.dimension, stream)
        return drawn.reshape(count, self.dimension)

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        return (
            f"Discrete Gaussian noise of parameter {self.sigma:.6g} in each of "
            f"{self.dimension} coordinates, added once to the sum."
        )
