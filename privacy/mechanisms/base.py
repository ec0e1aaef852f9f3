"""What every noise law offers, whichever its family: the `Mechanism` protocol and its base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from parley.privacy.accounting.rounding import check_positive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.privacy.accounting.events import Event
    from parley.privacy.sampling.stream import NoiseStream

__all__ = ["Mechanism", "NoiseLaw", "check_probability"]


class Mechanism(Protocol):
    """A noise law with its sensitivity and scale, all values in one unit.

    `draw` and, in a run, `noise_tail` are meant for grid units, where noise is integer.
    """

    law: ClassVar[str]

    @property
    def sensitivity(self) -> float:
        """Δ, L2, replace-one."""

    @property
    def dimension(self) -> int:
        """d."""

    @property
    def scale(self) -> float:
        """σ of the Gaussians; the scale of a Laplace's coordinates, or of l2-laplace's length."""

    def event(self) -> Event:
        """What one release costs."""

    def expected_norm(self) -> float:
        """Root mean square of the noise vector's L2 norm, √E‖z‖²."""

    def noise_tail(self, probability: float) -> float:
        """A bound on max |z_i| that fails with at most this probability.

        Raises:
            ValueError: not 0 < probability < 1.
        """

    def draw(self, stream: NoiseStream) -> NDArray[np.int64]:
        """The noise, `[d]`, in grid units."""

    def describe(self) -> str:
        """One plain sentence."""


@dataclass(frozen=True, kw_only=True)
class NoiseLaw(ABC):
    """The part all laws share.

    Attributes:
        sensitivity: Δ > 0, L2, replace-one.
        dimension: d ≥ 1.

    Raises:
        ValueError: a value outside these ranges.
    """

    sensitivity: float
    dimension: int

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        if isinstance(self.dimension, bool) or not isinstance(self.dimension, int):
            raise ValueError(f"Expected dimension to be an integer, got {self.dimension!r}.")
        if self.dimension < 1:
            raise ValueError(f"Expected dimension ≥ 1, got {self.dimension}.")

    @property
    @abstractmethod
    def scale(self) -> float:
        """The law's scale, in the unit of the sensitivity."""

    @abstractmethod
    def event(self) -> Event:
        """What one release costs."""


def check_probability(probability: float) -> None:
    """Raise ValueError unless 0 < probability < 1."""
    if not 0 < probability < 1:
        raise ValueError(f"Expected 0 < probability < 1, got {probability}.")
