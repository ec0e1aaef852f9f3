"""DP-SGD steps inside a party, as a mechanism: its noise is in what the party sends.

>>> steps = PartySteps(
...     sensitivity=2.0, dimension=10, clip_norm=1.0, noise_multiplier=4.0,
...     sampling_rate=0.01, steps=100, neighbouring="replace-one",
... )
>>> steps.event().event.count, steps.scale
(100, 4.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from parley.privacy.accounting.clipped_count import count_deviation, gradient_multiplier
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.rounding import check_positive
from parley.privacy.mechanisms.base import TrainingNoise
from parley.privacy.mechanisms.sampled import steps_event, steps_facts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parley.privacy.sampling.stream import NoiseStream


@dataclass(frozen=True, kw_only=True)
class PartySteps(TrainingNoise):
    """`steps` steps of DP-SGD: Poisson batches at rate q, N(0, (σC)²I) on each clipped sum.

    `sensitivity` is that of one clipped sum, 2C under replace-one, C under add-or-remove-one.
    What a party sends is post-processing of its noisy sums, so the server adds nothing, and one
    release charges each party's records the steps of that party alone: parties are disjoint.

    Where a count of clipped gradients is released too, it is the last of the d coordinates, and σ
    is what both together come to: the sums' own noise is larger
    (`parley.privacy.accounting.clipped_count`).

    Attributes:
        noise_multiplier: σ, charged.
        clipped_share: of 1/σ², given to the count; 0 releases none.
        attendance: p, with which one coin of the party, that may be seen, puts all of a release's
            steps into the sum; else it sends zero (`parley.privacy.accounting.events.BehindCoin`).
    """

    law: ClassVar[str] = "dp-sgd"
    sampler_has_slack: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("clip_norm", self.clip_norm)
        if self.sensitivity != self.step.sensitivity * self.clip_norm:
            raise ValueError(
                f"Expected a sensitivity of {self.step.sensitivity} × {self.clip_norm} with "
                f"{self.neighbouring} neighbours, got {self.sensitivity}."
            )
        if self.parameters < 1:
            raise ValueError("Expected a coordinate beside the clipped fraction, got none.")
        # Checks the share too.
        check_positive("the noise multiplier of gradients", self.gradient_multiplier)

    @property
    def training(self) -> PartySteps:
        """Itself."""
        return self

    @property
    def parameters(self) -> int:
        """Coordinates of a clipped sum."""
        return self.dimension - (self.clipped_share > 0)

    @property
    def gradient_multiplier(self) -> float:
        """σ_g: what is added to a clipped sum has standard deviation σ_g·C."""
        return gradient_multiplier(self.noise_multiplier, self.clipped_share)

    @property
    def multiplier(self) -> float:
        """σ."""
        return self.noise_multiplier

    @property
    def scale(self) -> float:
        """σC (σ_g·C beside a count), of every coordinate of a step's sum."""
        return self.gradient_multiplier * self.clip_norm

    def facts(self) -> dict[str, Any]:
        """Rate, steps and accountant; the scale as the party draws it, whatever the grid."""
        facts = steps_facts(self.sampling_rate, self.steps) | {"noise_parameter": self.scale}
        if self.attendance < 1:
            coin = f"parties, p = {self.attendance:g} (may be seen)"
            facts["sampler"] = f"{coin}, {facts['sampler']}"
        return facts | ({"clipped_share": self.clipped_share} if self.clipped_share else {})

    def event(self) -> Event:
        """The steps, or the one Gaussian they are at q = 1; the samplers' distance as δ."""
        return steps_event(
            self.step,
            steps=self.steps,
            dimension=self.dimension,
            attendance=self.attendance,
            together=self.steps,
        )

    def expected_norm(self) -> float:
        """√d·σC, of one step's noise on its sum."""
        return math.sqrt(self.parameters) * self.scale

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """`[count, d]` zeros: the noise is in the parties' contributions already."""
        del stream
        return np.zeros((count, self.dimension), dtype=np.int64)

    def describe(self) -> str:
        """One plain sentence."""
        sums = (
            f"Gaussian noise of standard deviation {self.scale:.6g} on the sum of clipped "
            f"gradients of each of {self.steps} Poisson batches (rate {self.sampling_rate:g})"
        )
        if self.attendance < 1:
            return f"{sums}, in every party that is in the sum (p = {self.attendance:g})."
        if not self.clipped_share:
            return f"{sums}, in every party."
        deviation = count_deviation(self.noise_multiplier, self.clipped_share, self.steps) / 2
        return f"{sums}, and of {deviation:.6g} on how many were clipped, in every party."
