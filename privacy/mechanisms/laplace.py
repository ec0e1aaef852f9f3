"""The Laplace laws: one for L2 sensitivity, and independent coordinates in three scales.

>>> from parley.privacy.accounting.composition import Composition
>>> for law in (L2Laplace, LaplaceL1, LaplaceAsPrinted):
...     noise = law(sensitivity=0.004, epsilon=0.5, dimension=100)
...     pure = Composition.from_events([noise.event()]).compute_epsilons(1e-9)["pure"]
...     print(noise.law, round(noise.expected_norm(), 4), pure)
l2-laplace 0.804 0.5
laplace-l1 1.1314 0.5
laplace-as-printed 0.1131 5.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from parley.privacy.accounting.privacy_events import Approximate, Pure
from parley.privacy.accounting.rounding import (
    check_positive,
    format_exact,
    format_rounded_up,
    round_quotient_up,
    round_root_up,
    round_up,
    to_fraction,
)
from parley.privacy.mechanisms.base import Mechanism, compute_chernoff_bound, compute_tail_odds
from parley.privacy.sampling.discrete_noise import discrete_laplace
from parley.privacy.sampling.l2_laplace import draw_rounded_l2_laplace
from parley.privacy.sampling.rounded_gaussian import compute_rounded_distance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.privacy.sampling.random_stream import NoiseStream

_ROUNDING_MARGIN = 1 + 1e-15  # more than the rounding errors of √d and one product


@dataclass(frozen=True, kw_only=True)
class LaplaceLaw(Mechanism):
    """A law scaled by the ε > 0 of one release."""

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("epsilon", self.epsilon)


class L2Laplace(LaplaceLaw):
    """Density ∝ exp(−‖z‖₂/b), b = Δ/ε: the norm is Gamma(d, b), the direction uniform.

    It is ε-DP for L2 sensitivity Δ (Chaudhuri, Monteleoni & Sarwate 2011, Theorem 6); rounding is
    post-processing. Its event has ε, ρ = ε²/2, and the sampler's distance as δ. Replace-one.
    """

    law: ClassVar[str] = "l2-laplace"
    has_sampler_distance: ClassVar[bool] = True

    @property
    def scale(self) -> float:
        """b = Δ/ε, rounded up: the scale of the norm's Gamma(d, b) law."""
        return round_quotient_up(self.sensitivity, self.epsilon)

    @property
    def sampler_scale(self) -> float:
        """√d·b, near the norm's mean over √d."""
        return self.scale * math.sqrt(self.dimension)

    def event(self) -> Approximate:
        """Return the event: pure ε, up to the sampler's distance."""
        distance = compute_rounded_distance(self.dimension)
        return Approximate(event=Pure(epsilon=self.epsilon), delta=distance)

    def expected_norm(self) -> float:
        """Return √(d(d+1))·b."""
        return math.sqrt(self.dimension * (self.dimension + 1)) * self.scale

    def noise_tail(self, probability: float) -> float:
        """Return a Chernoff bound for all d coordinates; rounding adds at most ½ grid unit to it.

        E exp(t·z_i) = (1 − b²t²)^(−(d+1)/2). With u = bt in (0, 1), |z_i| ≤ x for all i except with
        probability 2d·(1 − u²)^(−(d+1)/2)·e^(−ux/b).
        """
        log_odds = compute_tail_odds(self.dimension, probability)
        return self.scale * compute_chernoff_bound((self.dimension + 1) / 2, log_odds)

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[count, d]` rounded l2-laplace; raise ValueError unless b ≥ 2⁻²⁰ and b·√d ≤ 2⁴⁰."""
        return draw_rounded_l2_laplace(self.scale, self.dimension, count, stream)

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        return (
            f"A noise vector of {self.dimension} coordinates, of uniform direction and of length "
            f"Gamma({self.dimension}, {self.scale:.6g}), rounded to the grid and added once to the "
            "sum."
        )


class _CoordinatewiseLaplace(LaplaceLaw):
    """Discrete Laplace in each coordinate: P[z_i = k] ∝ exp(−|k|/scale), sampled exactly.

    A shift by v costs |v_i|/scale in coordinate i: ε = ‖v‖₁/scale ≤ √d·Δ/scale (Dwork & Roth
    2014, Theorem 3.6) and ρ = Σ (v_i/scale)²/2 ≤ (Δ/scale)²/2 (Bun & Steinke 2016, Proposition
    1.4 in each coordinate; independent coordinates add up).
    """

    def expected_norm(self) -> float:
        """Return √(2d)·scale, slightly above the discrete law's norm."""
        return math.sqrt(2 * self.dimension) * self.scale

    def noise_tail(self, probability: float) -> float:
        """Return scale·ln(2d/p); P[|z_i| > x] ≤ 2·e^(−x/scale) also holds for the discrete law."""
        return self.scale * compute_tail_odds(self.dimension, probability)

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[count, d]` discrete Laplaces; raise ValueError for a scale outside [2⁻²⁰, 2⁴⁰]."""
        drawn = discrete_laplace(self.scale, count * self.dimension, stream)
        return drawn.reshape(count, self.dimension)

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        return (
            f"Laplace noise of scale {self.scale:.6g} in each of {self.dimension} coordinates, "
            "drawn on the grid and added once to the sum."
        )


class LaplaceL1(_CoordinatewiseLaplace):
    """Discrete Laplace of scale √d·Δ/ε: exactly ε-DP, because √d·Δ bounds the L1 norm.

    Its event has ε, and ρ = ε²/(2d) since every coordinate costs its own share. Replace-one.
    """

    law: ClassVar[str] = "laplace-l1"

    @property
    def scale(self) -> float:
        """√d·Δ/ε, rounded up."""
        root = 1.0 if self.dimension == 1 else math.sqrt(self.dimension) * _ROUNDING_MARGIN
        return round_quotient_up(self.sensitivity * root, self.epsilon)

    def event(self) -> Pure:
        """Return the event: pure ε and ρ = ε²/(2d)."""
        rho = round_up(to_fraction(self.epsilon) ** 2 / (2 * self.dimension))
        return Pure(epsilon=self.epsilon, rho=rho)


@dataclass(frozen=True, kw_only=True)
class Laplace(_CoordinatewiseLaplace):
    """Discrete Laplace of scale b = Δ₁/ε in each coordinate, for a known L1 sensitivity.

    On integers that a neighbour moves by v: ε = ‖v‖₁/b ≤ Δ₁/b (Dwork & Roth 2014, Theorem 3.6) and
    ρ = Σ (v_i/b)²/2 ≤ Δ₂²/(2b²). Both hold under the relation of Δ₁ and Δ₂. Sampled exactly.

    Attributes:
        sensitivity_l1: Δ₁, between Δ₂ and √d·Δ₂, as for the norms of any vector.
    """

    law: ClassVar[str] = "laplace"
    lengths: ClassVar[tuple[str, ...]] = ("sensitivity", "sensitivity_l1")

    sensitivity_l1: float

    @property
    def bound_l1(self) -> float:
        """Δ₁."""
        return self.sensitivity_l1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("sensitivity_l1", self.sensitivity_l1)
        least, most = self.sensitivity, self.sensitivity * math.sqrt(self.dimension)
        if not least * (1 - 1e-9) <= self.sensitivity_l1 <= most * (1 + 1e-9):
            raise ValueError(
                f"Expected Δ₁ from Δ₂ = {least:g} to √d·Δ₂ = {most:g}, got {self.sensitivity_l1:g}."
            )

    @property
    def scale(self) -> float:
        """b = Δ₁/ε, rounded up."""
        return round_quotient_up(self.sensitivity_l1, self.epsilon)

    def event(self) -> Pure:
        """Return the event: pure ε and ρ = Δ₂²/(2b²)."""
        ratio = to_fraction(self.sensitivity) / min(to_fraction(self.scale), Fraction(self.scale))
        return Pure(epsilon=self.epsilon, rho=round_up(ratio**2 / 2))

    def build_facts(self) -> dict[str, Any]:
        """Return Δ₁."""
        return {"sensitivity_l1": self.sensitivity_l1}


class LaplaceAsPrinted(_CoordinatewiseLaplace):
    """Discrete Laplace of scale Δ/ε, as Jayaraman et al. 2018 print it. *Not* ε-DP for d > 1.

    It uses the L2 sensitivity Δ with a scale made for L1. It is √d·ε-DP, which is tight, and has ρ
    = ε²/2. It is offered to reproduce the paper; its event charges its true cost. Replace-one.
    """

    law: ClassVar[str] = "laplace-as-printed"

    @property
    def scale(self) -> float:
        """b = Δ/ε, rounded up."""
        return round_quotient_up(self.sensitivity, self.epsilon)

    def event(self) -> Pure:
        """Return the event: pure √d·ε, rounded up, and ρ = ε²/2."""
        square = to_fraction(self.epsilon) ** 2
        return Pure(epsilon=round_root_up(self.dimension * square), rho=round_up(square / 2))

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        charged = format_rounded_up(self.event().epsilon or 0.0)
        return (
            f"{super().describe().rstrip('.')}: the paper's scale, which is {charged}-DP "
            f"and not {format_exact(self.epsilon)}-DP."
        )
