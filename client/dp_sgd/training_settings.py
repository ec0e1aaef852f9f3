"""`LocalTraining`: a party's training in one round, as public numbers, checked when built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from parley.client.models.contribution_clipping import build_ball
from parley.privacy.accounting.clipped_fraction_noise import (
    check_share,
    compute_count_deviation,
    compute_gradient_multiplier,
)
from parley.privacy.sensitivity.bounded_sets import Set

EXACT: Final = "exact"
"""Method for chains: whole numbers from the record on (`parley.client.dp_sgd.exact_clipping`)."""

VMAP: Final = "vmap"
"""Method for other networks: a record's gradient is written out, then clipped
(`parley.client.dp_sgd.torch_clipping`).
"""

_MAX_GRADIENT_VALUES: Final = 1 << 26
"""Maximum values of written-out gradients at a time: 512 MiB of float64."""

_GRID_BITS: Final = (26, 33)
"""Minimum and maximum bits of C in grid units.

The minimum is that of written-out gradients
(`parley.client.models.contribution_clipping.build_ball`). With the maximum, sums of 2²⁰ records are
exact.
"""

MAX_CLIP_NORM = 2.0**40
"""Maximum C; the minimum is its inverse. No sum overflows, and no square that matters underflows.
"""


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """A party's training in one round.

    Attributes:
        clip_norm: C for each record's gradient. None: no clipping or noise, if privacy comes from
            elsewhere.
        noise_multiplier: σ; the noise on the sum has standard deviation σC, or σ_g·C with a share.
        optimiser: sgd (with `momentum`) or adam; starts again in each round.
        per_example_method: `EXACT` or `VMAP`.
        micro_batch: maximum records whose gradients are computed at once, which bounds memory. It
            is less if written-out gradients would take more than 512 MiB.
        clipped_share: fraction of a step's privacy for the fraction of clipped gradients; 0: it is
            not released.
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
            expected = "Expected noise_multiplier ≥ 0, steps ≥ 1, micro_batch ≥ 1"
            got = f"{self.noise_multiplier}, {self.steps}, {self.micro_batch}"
            raise ValueError(f"{expected}, got {got}.")
        check_share(self.clipped_share)
        if self.clipped_share and not self.noise_multiplier:
            share = self.clipped_share
            raise ValueError(f"Expected noise with a clipped_share of {share}, got none.")

    def compute_pass_rows(self, dimension: int) -> int:
        """Return the rows of a pass: `micro_batch`, or fewer if gradients are written out."""
        if self.exact:
            return self.micro_batch
        return min(self.micro_batch, max(8, _MAX_GRADIENT_VALUES // dimension))

    @property
    def grid_bits(self) -> int:
        """b: grid units are 2^-b; their noise has a standard deviation of at most 2⁴⁰."""
        least, most = _GRID_BITS
        _, room = math.frexp(2.0**40 / max(1.0, self.gradient_multiplier))
        return max(least, min(most, room - 1)) - math.frexp(self.clip_norm or 1.0)[1]

    @property
    def radius(self) -> int | None:
        """⌊C·2^b⌋, the maximum length of a record's whole numbers in a chain; None: no clipping."""
        return None if self.clip_norm is None else math.floor(self.clip_norm * 2.0**self.grid_bits)

    @property
    def exact(self) -> bool:
        """Whether a record's gradient does not depend on other records, by construction."""
        return self.per_example_method == EXACT

    def build_sensitivity_set(self, dimension: int) -> tuple[Set, int]:
        """Build the set of whole numbers of 2^-b that a record adds to a sum; return it and b."""
        if self.clip_norm is None or self.radius is None:
            raise ValueError("Expected a clip norm, got none.")
        if self.exact:
            return Set.ball(dimension, squared=self.radius**2), self.grid_bits
        return build_ball(dimension, self.clip_norm)

    @property
    def moments(self) -> tuple[str, ...]:
        """Names of the values that the optimiser stores between steps."""
        if self.optimiser == "adam":
            return ("first", "second")
        return ("first",) if self.momentum else ()

    @property
    def max_step(self) -> float:
        """Distance that one step moves a model, without noise and momentum."""
        clip = self.clip_norm if self.optimiser == "sgd" and self.clip_norm is not None else 1.0
        return self.learning_rate * clip

    def bound_update(self, records: int) -> float:
        """Return a bound that a coordinate of an update does not reach in practice."""
        if self.optimiser == "adam":
            return 10 * self.learning_rate * self.steps
        rate = self.learning_rate / (1 - self.momentum)
        clip = self.clip_norm or 1.0
        noise = self.gradient_multiplier * clip / (self.sampling_rate * records)
        return rate * (self.steps * clip + 12 * math.sqrt(self.steps) * noise)

    def compute_step_noise(self, records: int) -> float:
        """Return the standard deviation of a coordinate of one step's noise in a party's model.

        Rounding to the grid costs no privacy if all noise is inside the party, but should be small
        against this noise.

        Args:
            records: number of records that a step's sum is divided by, over q.
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
