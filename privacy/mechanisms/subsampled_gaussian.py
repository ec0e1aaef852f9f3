"""Noise on the sums of Poisson batches, added outside the parties: the steps of distributed DP-SGD.

>>> noise = SampledGaussian(
...     sensitivity=2.0**20, dimension=10, sigma=3.2 * 2.0**20, sampling_rate=0.05, steps=1000,
...     neighbouring="add-or-remove-one",
... )
>>> noise.multiplier, noise.event().event.count
(3.2, 1000)

Also here: DP-SGD steps inside a party, as a mechanism: its noise is in what the party sends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from parley.privacy.accounting.privacy_events import (
    Approximate,
    BernoulliSteps,
    GaussianEvent,
    PoissonSampledGaussian,
    PrivacyEvent,
    Repeated,
)
from parley.privacy.accounting.rounding import check_positive, round_quotient_up
from parley.privacy.accounting.subsampled_gaussian import (
    compute_count_deviation,
    compute_gradient_multiplier,
)
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.mechanisms.base import SampledNoise, TrainingNoise
from parley.privacy.sampling.gaussian import compute_rounded_distance, draw_rounded_gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parley.privacy.sampling.random_stream import NoiseStream


def build_steps_facts(sampling_rate: float, steps: int) -> dict[str, Any]:
    """What a ledger keeps of such steps."""
    return {
        "sampling_rate": sampling_rate,
        "sampler": f"Poisson, {steps} steps a release",
        "accountant": "dp-accounting",
        "accountant_version": _get_accountant_version(),
    }


@lru_cache(maxsize=1)
def _get_accountant_version() -> str:
    return version("dp-accounting")


def build_steps_event(
    step: PoissonSampledGaussian,
    *,
    steps: int,
    dimension: int,
    attendance: float = 1.0,
    together: int = 1,
) -> PrivacyEvent:
    """`steps` such steps, or the one Gaussian they are at q = 1; the samplers' distance as δ.

    Of d coordinates a step, drawn whether a party is in it or not; `attendance` is the p with which
    a coin of the party, seen by anybody, puts it into `together` steps at a time.
    """
    slack = compute_rounded_distance(dimension * steps)
    if attendance < 1:
        coin = BernoulliSteps(probability=attendance, event=step, count=together)
        return Approximate(event=Repeated(event=coin, count=steps // together), delta=slack)
    if step.sampling_rate == 1:
        # T Gaussians are one of √T·Δ/σ (Dong, Roth & Su 2022, Corollary 3.3), rounded up.
        root = math.nextafter(math.sqrt(steps), math.inf)
        mu = round_quotient_up(step.sensitivity, step.noise_multiplier) * root
        return Approximate(event=GaussianEvent(mu=math.nextafter(mu, math.inf)), delta=slack)
    return Approximate(event=Repeated(event=step, count=steps), delta=slack)


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(SampledNoise):
    """round(N(0, σ²I)) on each of `steps` integer sums over batches at rate q, one after another.

    Every party draws its records into the batch by its own coins; a record's share of a sum is at
    most C long, so that `sensitivity` Δ is C under add-or-remove-one and 2C under replace-one, both
    with what rounding to the grid adds. Post-processing of the continuous mechanism: a step is the
    Poisson-subsampled Gaussian of noise multiplier σ/C (Abadi et al. 2016, arXiv:1607.00133;
    `parley.privacy.accounting.subsampled_gaussian`), and steps compose adaptively. The union of the
    parties' batches is a Poisson sample of the union of their records.

    Amplification needs each record's own coin to be hidden: it holds for records, against everyone
    but the record's party. A party's coins for its records do not hide the party: for unit party
    q = 1, unless a whole party is in a sum by its own single coin (p, `attendance`), which hides
    it in the same way from whoever does not know how it fell (`hidden`): q is then p. Where that
    may be known, and for a record always, a step is behind that coin
    (`parley.privacy.accounting.privacy_events.BernoulliSteps`): it costs nothing in a sum that the
    party is not in.

    Attributes:
        sigma: > 0, in grid units, of every coordinate of one sum.
        hidden: charged as though nobody knew how that coin fell: `sampling_rate` is p.
    """

    law: ClassVar[str] = "sampled-gaussian"
    has_sampler_distance: ClassVar[bool] = True
    lengths: ClassVar[tuple[str, ...]] = ("sensitivity", "sigma")

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        super().__post_init__()
        if self.hidden and self.sampling_rate != self.attendance:
            raise ValueError(
                f"Expected a hidden coin to be charged at its own rate, {self.attendance:g}, got "
                f"{self.sampling_rate:g}."
            )

    @property
    def sampled(self) -> SampledGaussian:
        """Itself."""
        return self

    @property
    def scale(self) -> float:
        """σ of every coordinate of one sum."""
        return self.sigma

    @property
    def sums(self) -> int:
        """Every step is one."""
        return self.steps

    @property
    def multiplier(self) -> float:
        """σ/C, rounded down: Δ is C or 2C."""
        exactly = (
            Neighbouring(self.neighbouring).radii
            * Fraction(self.sigma)
            / Fraction(self.sensitivity)
        )
        nearest = float(exactly)
        return nearest if nearest <= exactly else math.nextafter(nearest, 0.0)

    def build_facts(self) -> dict[str, Any]:
        """Rate, steps and accountant."""
        facts = build_steps_facts(self.sampling_rate, self.steps)
        if self.attendance == 1:
            return facts
        coins = "" if self.hidden else " (may be seen), Poisson"
        sampler = f"parties, p = {self.attendance:g}{coins}, {self.steps} sums a release"
        return facts | {"sampler": sampler}

    def event(self) -> PrivacyEvent:
        """The steps of one release."""
        return build_steps_event(
            self.step,
            steps=self.steps,
            dimension=self.dimension,
            attendance=1.0 if self.hidden else self.attendance,
        )

    def expected_norm(self) -> float:
        """√d·σ, of one sum's noise."""
        return math.sqrt(self.dimension) * self.sigma

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """`[count, d]` rounded Gaussian values, for one sum each."""
        drawn = draw_rounded_gaussian(self.sigma, count * self.dimension, stream)
        return drawn.reshape(count, self.dimension)

    def describe(self) -> str:
        """One plain sentence."""
        batches, who = "the sum over all parties", "all parties"
        if self.attendance < 1:
            who = f"parties that are in it with p = {self.attendance:g} each"
            batches = f"the sum over {who}"
        if self.sampling_rate < 1 and not self.hidden:
            batches = (
                f"the sum over a Poisson batch of the records of {who} "
                f"(rate {self.sampling_rate:g})"
            )
        return (
            f"Gaussian noise of standard deviation {self.sigma:.6g} in each of {self.dimension} "
            f"coordinates of {batches}, in each of {self.steps} steps of a release."
        )


@dataclass(frozen=True, kw_only=True)
class PartySteps(TrainingNoise):
    """`steps` steps of DP-SGD: Poisson batches at rate q, N(0, (σC)²I) on each clipped sum.

    `sensitivity` is that of one clipped sum, 2C under replace-one, C under add-or-remove-one.
    What a party sends is post-processing of its noisy sums, so the server adds nothing, and one
    release charges each party's records the steps of that party alone: parties are disjoint.

    Where a count of clipped gradients is released too, it is the last of the d coordinates, and σ
    is what both together come to: the sums' own noise is larger
    (`parley.privacy.accounting.subsampled_gaussian`).

    Attributes:
        noise_multiplier: σ, charged.
        clipped_share: of 1/σ², given to the count; 0 releases none.
        attendance: p, with which one coin of the party, that may be seen, puts all of a release's
            steps into the sum; else it sends zero
            (`parley.privacy.accounting.privacy_events.BernoulliSteps`).
    """

    law: ClassVar[str] = "dp-sgd"
    has_sampler_distance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("clip_norm", self.clip_norm)
        if self.sensitivity < self.step.sensitivity * self.clip_norm:
            raise ValueError(
                f"Expected a sensitivity of {self.step.sensitivity} × {self.clip_norm} or more, "
                f"with {self.neighbouring} neighbours, got {self.sensitivity}."
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
        return compute_gradient_multiplier(self.noise_multiplier, self.clipped_share)

    @property
    def multiplier(self) -> float:
        """σ."""
        return self.noise_multiplier

    @property
    def scale(self) -> float:
        """σC (σ_g·C beside a count), of every coordinate of a step's sum."""
        return self.gradient_multiplier * self.clip_norm

    def build_facts(self) -> dict[str, Any]:
        """Rate, steps and accountant; the scale as the party draws it, whatever the grid."""
        facts = build_steps_facts(self.sampling_rate, self.steps) | {"noise_parameter": self.scale}
        if self.attendance < 1:
            coin = f"parties, p = {self.attendance:g} (may be seen)"
            facts["sampler"] = f"{coin}, {facts['sampler']}"
        return facts | ({"clipped_share": self.clipped_share} if self.clipped_share else {})

    def event(self) -> PrivacyEvent:
        """The steps, or the one Gaussian they are at q = 1; the samplers' distance as δ."""
        return build_steps_event(
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
        deviation = (
            compute_count_deviation(self.noise_multiplier, self.clipped_share, self.steps) / 2
        )
        return f"{sums}, and of {deviation:.6g} on how many were clipped, in every party."
