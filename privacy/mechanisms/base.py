"""Base classes of all noise laws."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from parley.privacy.accounting.privacy_events import PoissonSampledGaussian
from parley.privacy.accounting.rounding import check_positive, check_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.privacy.accounting.privacy_events import PrivacyEvent
    from parley.privacy.sampling.random_stream import NoiseStream


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A noise law with its sensitivity and scale, all values in one unit.

    `draw_many` and, in a run, `noise_tail` are meant for grid units, in which noise is an integer.
    A law scaled by σ derives from `parley.privacy.mechanisms.gaussian.GaussianLaw`. A law scaled by
    the ε of one release derives from `parley.privacy.mechanisms.laplace.LaplaceLaw`. From this
    `parley.privacy.calibration.noise_calibration.calibrate` finds its scale.

    Attributes:
        law: its name, the key of its row in `parley.privacy.mechanisms.registry.MECHANISMS`.
        has_sampler_distance: whether the sampler is at a distance from the law, which the event
            states as δ.
        lengths: its fields that are in the unit of the values.
        calibrations: calibrations that may find its σ, each with the accountant that checks the
            result. They are those proved for the law. Empty if the law is scaled by an ε.
    """

    law: ClassVar[str]
    vectors: ClassVar[int] = 1
    has_sampler_distance: ClassVar[bool] = False
    lengths: ClassVar[tuple[str, ...]] = ("sensitivity",)
    calibrations: ClassVar[Mapping[str, str]] = MappingProxyType({})

    sensitivity: float
    dimension: int

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        check_whole("dimension", self.dimension)

    @property
    def sums(self) -> int:
        """Number of secure sums in one release, each with its own draw."""
        return 1

    @property
    def training(self) -> TrainingNoise | None:
        """The mechanism itself if it is the noise of a party's training; None: noise on a sum."""
        return None

    @property
    def is_in_contributions(self) -> bool:
        """Whether all of its noise is in the parties' contributions, and none on the sum."""
        return self.training is not None

    @property
    def sampled(self) -> SampledNoise | None:
        """The mechanism itself if it is the noise on several sums of sampled batches, else None."""
        return None

    @property
    def bound_l1(self) -> float | None:
        """Δ₁ if the noise is scaled to it; None if it is scaled to Δ₂, its `sensitivity`."""
        return None

    @property
    def objective(self) -> float | None:
        """ε₁ of additional noise inside the parties' objectives; None if there is none."""
        return None

    @property
    @abstractmethod
    def scale(self) -> float:
        """σ of a Gaussian, the scale of a Laplace's coordinates, or that of l2-laplace's length."""

    @property
    def sampler_scale(self) -> float:
        """Value that the sampler limits to between 2⁻²⁰ and 2⁴⁰ grid units."""
        return self.scale

    def convert_to_unit(self, unit: float) -> Self:
        """Return the same noise with values in another unit: for tables, not for drawing."""
        lengths: dict[str, Any] = {name: getattr(self, name) / unit for name in self.lengths}
        return replace(self, **lengths)

    @property
    def parameters(self) -> int:
        """Number of learned coordinates; the others belong to a metric released with them."""
        return self.dimension

    def build_facts(self) -> dict[str, Any]:
        """Return the facts about the law that a ledger stores with its name and scale."""
        return {}

    @abstractmethod
    def event(self) -> PrivacyEvent:
        """Return the cost of one release."""

    @abstractmethod
    def expected_norm(self) -> float:
        """Return the root mean square of the noise vector's L2 norm, √E‖z‖²."""

    @abstractmethod
    def noise_tail(self, probability: float) -> float:
        """Return a bound on max |z_i| that fails with at most this probability."""

    @abstractmethod
    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[count, d]` independent noise vectors, in grid units."""

    def draw(self, stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[d]` one noise vector."""
        result: NDArray[np.int64] = self.draw_many(1, stream)[0]
        return result

    @abstractmethod
    def describe(self) -> str:
        """Return one plain sentence about the noise."""


@dataclass(frozen=True, kw_only=True)
class StepsNoise(Mechanism):
    """Noise on each of several sums over Poisson batches, the steps of one release.

    Attributes:
        sampling_rate: the charged q.
        attendance: probability p with which a whole party is in a sum, by its own coin; 1: always.
    """

    sampling_rate: float
    steps: int
    neighbouring: str
    attendance: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("steps", self.steps)
        if not 0 < self.attendance <= 1:
            raise ValueError(f"Expected attendance in (0, 1], got {self.attendance}.")
        _ = self.step

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """σ over the length C of one clipped vector, rounded down: the charged multiplier."""

    @property
    def step(self) -> PoissonSampledGaussian:
        """Event of one step for the accountant; checks rate, multiplier and relation."""
        return PoissonSampledGaussian(
            sampling_rate=self.sampling_rate,
            noise_multiplier=self.multiplier,
            neighbouring=self.neighbouring,
        )

    def noise_tail(self, probability: float) -> float:
        """Return the tail bound of one step's noise on its sum."""
        return compute_normal_tail(self.scale, self.dimension, probability)


@dataclass(frozen=True, kw_only=True)
class TrainingNoise(StepsNoise):
    """Interface of the noise of training inside the party (`subsampled_gaussian.PartySteps`)."""

    clip_norm: float
    noise_multiplier: float
    clipped_share: float = 0.0

    @property
    @abstractmethod
    def gradient_multiplier(self) -> float:
        """σ_g: the noise added to a clipped sum has standard deviation σ_g·C."""


@dataclass(frozen=True, kw_only=True)
class SampledNoise(StepsNoise):
    """Interface of the noise on several sums of batches (`subsampled_gaussian.SampledGaussian`)."""

    sigma: float
    hidden: bool = False


def check_probability(probability: float) -> None:
    """Raise ValueError unless 0 < probability < 1."""
    if not 0 < probability < 1:
        raise ValueError(f"Expected 0 < probability < 1, got {probability}.")


def compute_tail_odds(dimension: int, probability: float) -> float:
    """Return ln(2d/p) for 2d tails, one for each side of each coordinate; 2d/p may overflow."""
    check_probability(probability)
    return math.log(2 * dimension) - math.log(probability)


def compute_normal_tail(sigma: float, dimension: int, probability: float) -> float:
    """Return σ√(2·ln(2d/p)) for sub-Gaussian coordinates; rounding adds at most ½ grid unit."""
    return sigma * math.sqrt(2 * compute_tail_odds(dimension, probability))


def compute_chernoff_bound(exponent: float, log_odds: float, jitter: float = 0.0) -> float:
    """Return x with P[z > x] ≤ e^(−log_odds), a Chernoff bound.

    It assumes E e^{uz} ≤ (1 − u²)^(−exponent)·e^{jitter·u²/2} for 0 < u < 1. Any u gives a bound.
    The best has u² ≈ 2·log_odds/exponent, or is close to 1.
    """
    grid = (1 / math.sqrt(1 + math.exp(step / 8)) for step in range(-160, 320))
    return min(
        (log_odds - exponent * math.log1p(-u * u) + jitter * u * u / 2) / u
        for u in grid
        if 0 < u < 1
    )
