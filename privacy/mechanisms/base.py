"""What every noise law offers, whichever its family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.rounding import check_positive

if TYPE_CHECKING:
    from parley.privacy.accounting.events import Event, PoissonSampledGaussian
    from parley.privacy.sampling.stream import NoiseStream


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A noise law with its sensitivity and scale, all values in one unit.

    `draw` and, in a run, `noise_tail` are meant for grid units, where noise is integer. A law
    derives from `parley.privacy.mechanisms.gaussian.GaussianLaw`, if it is scaled by σ, or from
    `parley.privacy.mechanisms.laplace.LaplaceLaw`, if it is scaled by the ε of one release: so
    `parley.privacy.calibration.calibration.calibrate` finds its scale.

    Attributes:
        law: its name, the key of its row in `parley.privacy.mechanisms.table.MECHANISMS`.
        vectors: draws of d coordinates behind one release of it.
        sampler_has_slack: the sampler is at a distance from the law, which its event states as δ.
        lengths: its fields that are in the unit of the values.
        calibrations: from which a σ may be found, each with the accountant that the result is held
            to: those that are proved for the law; none where it is scaled by an ε.
        sensitivity: Δ > 0, L2, replace-one.
        dimension: d ≥ 1.

    Raises:
        ValueError: a value outside these ranges.
    """

    law: ClassVar[str]
    vectors: ClassVar[int] = 1
    sampler_has_slack: ClassVar[bool] = False
    lengths: ClassVar[tuple[str, ...]] = ("sensitivity",)
    calibrations: ClassVar[Mapping[str, str]] = MappingProxyType({})

    sensitivity: float
    dimension: int

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        if isinstance(self.dimension, bool) or not isinstance(self.dimension, int):
            raise ValueError(f"Expected dimension to be an integer, got {self.dimension!r}.")
        if self.dimension < 1:
            raise ValueError(f"Expected dimension ≥ 1, got {self.dimension}.")

    @property
    def sums(self) -> int:
        """Secure sums of one release, each with its own draw."""
        return 1

    @property
    def training(self) -> TrainingNoise | None:
        """Itself, where it is the noise of a training inside the party; None: noise on a sum."""
        return None

    @property
    def inside(self) -> bool:
        """Whether its noise is in what each party sends, and none of it on the sum."""
        return self.training is not None

    @property
    def sampled(self) -> SampledNoise | None:
        """Itself, where it is the noise on each of several sums of sampled batches."""
        return None

    @property
    def bound_l1(self) -> float | None:
        """Δ₁, where the noise is scaled to it; None: to Δ₂, its `sensitivity`."""
        return None

    @property
    def objective(self) -> float | None:
        """ε₁ of noise inside the parties' objectives, beside it; None where there is none."""
        return None

    @property
    @abstractmethod
    def scale(self) -> float:
        """σ of the Gaussians; the scale of a Laplace's coordinates, or of l2-laplace's length."""

    @property
    def drawn_scale(self) -> float:
        """What the sampler's limits bound, 2⁻²⁰ to 2⁴⁰ grid units."""
        return self.scale

    def in_unit(self, unit: float) -> Self:
        """The same noise, values in another unit: for tables, not for drawing."""
        lengths: dict[str, Any] = {name: getattr(self, name) / unit for name in self.lengths}
        return replace(self, **lengths)

    @property
    def parameters(self) -> int:
        """Coordinates of what is learned; others belong to a figure released beside it."""
        return self.dimension

    def facts(self) -> dict[str, Any]:
        """What a ledger keeps of the law, beyond its name and scale."""
        return {}

    @abstractmethod
    def event(self) -> Event:
        """What one release costs."""

    @abstractmethod
    def expected_norm(self) -> float:
        """Root mean square of the noise vector's L2 norm, √E‖z‖²."""

    @abstractmethod
    def noise_tail(self, probability: float) -> float:
        """A bound on max |z_i| that fails with at most this probability.

        Raises:
            ValueError: not 0 < probability < 1.
        """

    @abstractmethod
    def draw(self, stream: NoiseStream) -> NDArray[np.int64]:
        """The noise, `[d]`, in grid units."""

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """`[count, d]` independent draws, of the same law as `draw` to the last bit of it.

        `draw` is the case of one. A law whose sampler takes a size draws them in one call.
        """
        drawn = [self.draw(stream) for _ in range(count)]
        return np.stack(drawn) if drawn else np.empty((0, self.dimension), dtype=np.int64)

    @abstractmethod
    def describe(self) -> str:
        """One plain sentence."""


@dataclass(frozen=True, kw_only=True)
class TrainingNoise(Mechanism):
    """What others ask of the noise of a training inside the party (`dp_sgd.PartySteps`)."""

    clip_norm: float
    noise_multiplier: float
    sampling_rate: float
    steps: int
    neighbouring: str
    clipped_share: float = 0.0
    attendance: float = 1.0

    @property
    @abstractmethod
    def gradient_multiplier(self) -> float:
        """σ_g: what is added to a clipped sum has standard deviation σ_g·C."""

    @property
    @abstractmethod
    def step(self) -> PoissonSampledGaussian:
        """What one step is to the accountant."""


@dataclass(frozen=True, kw_only=True)
class SampledNoise(Mechanism):
    """What others ask of noise on each of several sums of batches (`sampled.SampledGaussian`)."""

    sigma: float
    sampling_rate: float
    steps: int
    neighbouring: str
    attendance: float = 1.0
    hidden: bool = False

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """σ/C, rounded down."""

    @property
    @abstractmethod
    def step(self) -> PoissonSampledGaussian:
        """What one sum is to the accountant."""


def check_probability(probability: float) -> None:
    """Raise ValueError unless 0 < probability < 1."""
    if not 0 < probability < 1:
        raise ValueError(f"Expected 0 < probability < 1, got {probability}.")
