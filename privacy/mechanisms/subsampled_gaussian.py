"""Noise on the sums of Poisson batches, added outside the parties: the steps of distributed DP-SGD.

>>> noise = SampledGaussian(
...     sensitivity=2.0**20, dimension=10, sigma=3.2 * 2.0**20, sampling_rate=0.05, steps=1000,
...     neighbouring="add-or-remove-one",
... )
>>> noise.multiplier, noise.event().event.count
(3.2, 1000)

The module also defines DP-SGD steps inside a party as a mechanism. Their noise is in what the party
sends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from parley.privacy.accounting.clipped_fraction_noise import (
    compute_count_deviation,
    compute_gradient_multiplier,
)
from parley.privacy.accounting.privacy_events import (
    Approximate,
    BernoulliSteps,
    GaussianEvent,
    PrivacyEvent,
    Repeated,
)
from parley.privacy.accounting.rounding import check_positive, round_quotient_up
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.mechanisms.base import SampledNoise, StepsNoise, TrainingNoise
from parley.privacy.sampling.rounded_gaussian import compute_rounded_distance, draw_rounded_gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parley.privacy.sampling.random_stream import NoiseStream


def build_steps_facts(sampling_rate: float, steps: int) -> dict[str, Any]:
    """Return the facts about such steps that a ledger stores."""
    return {
        "sampling_rate": sampling_rate,
        "sampler": f"Poisson, {steps} steps a release",
        "accountant": "dp-accounting",
        "accountant_version": _get_accountant_version(),
    }


@lru_cache(maxsize=1)
def _get_accountant_version() -> str:
    return version("dp-accounting")


def _build_event(noise: StepsNoise, attendance: float, *, together: int = 1) -> PrivacyEvent:
    """Return the event of a release's steps, or of the equivalent Gaussian at q = 1.

    The samplers' distance is included as δ. It covers d coordinates per step, which are drawn
    whether or not a party is in the step. `attendance` is the p with which a coin of the party,
    which anyone may see, includes it in `together` steps at a time.
    """
    step, steps = noise.step, noise.steps
    slack = compute_rounded_distance(noise.dimension * steps)
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
    """round(N(0, σ²I)) on each of `steps` sequential integer sums over batches at rate q.

    Every party draws its records into the batch by its own coins. A record's contribution to a sum
    has length at most C, so `sensitivity` Δ is C under add-or-remove-one and 2C under replace-one.
    Both include the effect of rounding to the grid. The release is post-processing of the
    continuous mechanism: a step is the Poisson-subsampled Gaussian of noise multiplier σ/C (Abadi
    et al. 2016, arXiv:1607.00133; `parley.privacy.accounting.subsampled_gaussian`), and steps
    compose adaptively. The union of the parties' batches is a Poisson sample of the union of their
    records.

    Amplification needs each record's coin to be hidden. It holds for records, against everyone but
    the record's party. A party's coins for its records do not hide the party, so q = 1 for unit
    party. The exception is a whole party that is in a sum by its own single coin (p, `attendance`).
    That coin hides the party in the same way from anyone who does not know its outcome (`hidden`);
    then q is p. If the outcome may be known, and always for unit record, a step is behind that coin
    (`parley.privacy.accounting.privacy_events.BernoulliSteps`): it costs nothing in a sum that the
    party is not in.

    Attributes:
        sigma: > 0, in grid units, of every coordinate of one sum.
        hidden: charged as if the outcome of that coin were unknown: `sampling_rate` is p.
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
        """The mechanism itself."""
        return self

    @property
    def scale(self) -> float:
        """σ of every coordinate of one sum."""
        return self.sigma

    @property
    def sums(self) -> int:
        """Number of steps; each is one sum."""
        return self.steps

    @property
    def multiplier(self) -> float:
        """σ/C, rounded down: Δ is C or 2C."""
        radii = Neighbouring(self.neighbouring).radii
        exactly = radii * Fraction(self.sigma) / Fraction(self.sensitivity)
        nearest = float(exactly)
        return nearest if nearest <= exactly else math.nextafter(nearest, 0.0)

    def build_facts(self) -> dict[str, Any]:
        """Return rate, steps and accountant."""
        facts = build_steps_facts(self.sampling_rate, self.steps)
        if self.attendance == 1:
            return facts
        coins = "" if self.hidden else " (may be seen), Poisson"
        sampler = f"parties, p = {self.attendance:g}{coins}, {self.steps} sums a release"
        return facts | {"sampler": sampler}

    def event(self) -> PrivacyEvent:
        """Return the event of the steps of one release."""
        return _build_event(self, 1.0 if self.hidden else self.attendance)

    def expected_norm(self) -> float:
        """Return √d·σ of one sum's noise."""
        return math.sqrt(self.dimension) * self.sigma

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Draw `[count, d]` rounded Gaussian values, each row for one sum."""
        drawn = draw_rounded_gaussian(self.sigma, count * self.dimension, stream)
        return drawn.reshape(count, self.dimension)

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        batches, who = "the sum over all parties", "all parties"
        if self.attendance < 1:
            who = f"parties that take part with p = {self.attendance:g} each"
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

    A party's message is post-processing of its noisy sums, so the server adds no noise. One release
    charges each party's records only for that party's steps, because parties are disjoint.

    If a count of clipped gradients is also released, it is the last of the d coordinates, and σ is
    that of both together. The noise of the sums is then larger
    (`parley.privacy.accounting.subsampled_gaussian`).

    Attributes:
        noise_multiplier: σ, charged.
        clipped_share: part of 1/σ² that is used for the count; 0 releases none.
        attendance: probability p with which one coin of the party, which may be seen, includes all
            of a release's steps in the sum; otherwise the party sends zero
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
            raise ValueError("Expected a coordinate in addition to the clipped fraction, got none.")
        # This also checks the share.
        check_positive("the noise multiplier of gradients", self.gradient_multiplier)

    @property
    def training(self) -> PartySteps:
        """The mechanism itself."""
        return self

    @property
    def parameters(self) -> int:
        """Number of coordinates of a clipped sum."""
        return self.dimension - (self.clipped_share > 0)

    @property
    def gradient_multiplier(self) -> float:
        """σ_g: the noise added to a clipped sum has standard deviation σ_g·C."""
        return compute_gradient_multiplier(self.noise_multiplier, self.clipped_share)

    @property
    def multiplier(self) -> float:
        """σ."""
        return self.noise_multiplier

    @property
    def scale(self) -> float:
        """σC of every coordinate of a step's sum (σ_g·C if a count is released)."""
        return self.gradient_multiplier * self.clip_norm

    def build_facts(self) -> dict[str, Any]:
        """Return rate, steps, accountant, and the scale as the party draws it, for any grid."""
        facts = build_steps_facts(self.sampling_rate, self.steps) | {"noise_parameter": self.scale}
        if self.attendance < 1:
            coin = f"parties, p = {self.attendance:g} (may be seen)"
            facts["sampler"] = f"{coin}, {facts['sampler']}"
        return facts | ({"clipped_share": self.clipped_share} if self.clipped_share else {})

    def event(self) -> PrivacyEvent:
        """Return the event of the steps, or of the equivalent Gaussian at q = 1.

        The samplers' distance is included as δ.
        """
        return _build_event(self, self.attendance, together=self.steps)

    def expected_norm(self) -> float:
        """Return √d·σC of one step's noise on its sum."""
        return math.sqrt(self.parameters) * self.scale

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Return `[count, d]` zeros, because the noise is already in the parties' contributions."""
        return np.zeros((count, self.dimension), dtype=np.int64)

    def describe(self) -> str:
        """Return one plain sentence about the noise."""
        sums = (
            f"Gaussian noise of standard deviation {self.scale:.6g} on the sum of clipped "
            f"gradients of each of {self.steps} Poisson batches (rate {self.sampling_rate:g})"
        )
        if self.attendance < 1:
            return f"{sums}, in every party that is in the sum (p = {self.attendance:g})."
        if not self.clipped_share:
            return f"{sums}, in every party."
        both = compute_count_deviation(self.noise_multiplier, self.clipped_share, self.steps)
        return f"{sums}, and of {both / 2:.6g} on the number of clipped gradients, in every party."
