"""What a party does in one round of training: public numbers, checked when they are built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from parley.client.models.clipping import build_ball
from parley.privacy.accounting.subsampled_gaussian import (
    check_share,
    compute_count_deviation,
    compute_gradient_multiplier,
)
from parley.privacy.sensitivity.bounded_sets import Set

EXACT: Final = "exact"
"""Of chains: whole numbers from the record on (`parley.client.dp_sgd.exact_clipping`)."""

VMAP: Final = "vmap"
"""Of others: a record's gradient is written out, then cut
(`parley.client.dp_sgd.torch_clipping`)."""

_MAX_GRADIENT_VALUES: Final = 1 << 26
"""Values of written-out gradients that are held at once: 512 MiB of float64."""

_GRID_BITS: Final = (26, 33)
"""Of C in grid units: at least that of written gradients
(`parley.client.models.clipping.build_ball`),
at most what sums of 2²⁰ records are exact of."""

MAX_CLIP_NORM = 2.0**40
"""C lies between this and its inverse: no sum overflows, and no square that matters underflows."""


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """What one party does in one round.

    Attributes:
        clip_norm: C for every record's gradient; None trains without clipping or noise, where
            privacy comes from elsewhere.
        noise_multiplier: σ; the noise on the sum has standard deviation σC, σ_g·C with a share.
        optimiser: sgd (with `momentum`) or adam; begins anew every round.
        per_example_method: `EXACT` or `VMAP`.
        micro_batch: most records whose gradients are computed at once: bounds memory; fewer where
            written-out gradients would take more than 512 MiB.
        clipped_share: of a step's privacy, for the fraction of clipped gradients; 0 tells none.
    """

    steps: int
    sampling_rate: float
    clip_norm: float | None
    noise_multiplier: float
    optimiser: Literal["sgd", "adam"]
    learning_rate: float
    momentum: float
    per_example_method: str
    micro_batch: int
    clipped_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"Expected a sampling rate in (0, 1], got {self.sampling_rate}.")
        if self.clip_norm is not None and not 1 / MAX_CLIP_NORM <= self.clip_norm <= MAX_CLIP_NORM:
            raise ValueError(f"Expected clip_norm from 2^-40 to 2^40, got {self.clip_norm}.")
        if self.clip_norm is None and self.noise_multiplier:
            raise ValueError("Expected a clip_norm with noise, got None.")
        if self.noise_multiplier < 0 or self.steps < 1 or self.micro_batch < 1:
            raise ValueError(
                f"Expected noise_multiplier ≥ 0, steps ≥ 1, micro_batch ≥ 1, got "
                f"{self.noise_multiplier}, {self.steps}, {self.micro_batch}."
            )
        check_share(self.clipped_share)
        if self.clipped_share and not self.noise_multiplier:
            raise ValueError(
                f"Expected noise with a clipped_share of {self.clipped_share}, got none."
            )

    def compute_pass_rows(self, dimension: int) -> int:
        """Rows of a pass: `micro_batch`, or fewer where gradients are written out."""
        if self.exact:
            return self.micro_batch
        return min(self.micro_batch, max(8, _MAX_GRADIENT_VALUES // dimension))

    @property
    def grid_bits(self) -> int:
        """b: grid units are 2^-b; their noise has a standard deviation of 2⁴⁰ at most."""
        least, most = _GRID_BITS
        _, room = math.frexp(2.0**40 / max(1.0, self.gradient_multiplier))
        return max(least, min(most, room - 1)) - math.frexp(self.clip_norm or 1.0)[1]

    @property
    def radius(self) -> int | None:
        """⌊C·2^b⌋, which no record's whole numbers in a chain are longer than; None: no clip."""
        return None if self.clip_norm is None else math.floor(self.clip_norm * 2.0**self.grid_bits)

    @property
    def exact(self) -> bool:
        """Whether a record's gradient is its own by construction."""
        return self.per_example_method == EXACT

    def build_sensitivity_set(self, dimension: int) -> tuple[Set, int]:
        """Where whole numbers of 2^-b lie that a record adds to a sum; and b."""
        if self.clip_norm is None or self.radius is None:
            raise ValueError("Expected a clip norm, got none.")
        if self.exact:
            return Set.ball(dimension, squared=self.radius**2), self.grid_bits
        return build_ball(dimension, self.clip_norm)

    @property
    def moments(self) -> tuple[str, ...]:
        """What the optimiser keeps from step to step."""
        if self.optimiser == "adam":
            return ("first", "second")
        return ("first",) if self.momentum else ()

    @property
    def max_step(self) -> float:
        """How far one step moves a model, but for noise and momentum."""
        clip = self.clip_norm if self.optimiser == "sgd" and self.clip_norm is not None else 1.0
        return self.learning_rate * clip

    def bound_update(self, records: int) -> float:
        """A coordinate of an update of so many records that is out of reach in practice."""
        if self.optimiser == "adam":
            return 10 * self.learning_rate * self.steps
        rate = self.learning_rate / (1 - self.momentum)
        clip = self.clip_norm or 1.0
        noise = self.gradient_multiplier * clip / (self.sampling_rate * records)
        return rate * (self.steps * clip + 12 * math.sqrt(self.steps) * noise)

    def compute_step_noise(self, records: int) -> float:
        """Standard deviation of a coordinate of one step's noise, as it moves a party's model.

        Rounding to the grid is free where all noise is inside the party, but should be lost in
        this.

        Args:
            records: that a step's sum is divided by, over q.
        """
        noise = max(self.gradient_multiplier, 0.1) * (self.clip_norm or 1.0)
        return self.learning_rate * noise / (self.sampling_rate * records)

    @property
    def gradient_multiplier(self) -> float:
        """σ_g: the noise on a step's sum has standard deviation σ_g·C."""
        return compute_gradient_multiplier(self.noise_multiplier, self.clipped_share)

    @property
    def count_deviation(self) -> float:
        """Standard deviation of the noise on all steps' Σ (2b_i − 1)."""
        return compute_count_deviation(self.noise_multiplier, self.clipped_share, self.steps)
