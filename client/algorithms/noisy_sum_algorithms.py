"""Algorithms whose result is the noisy sum itself: Parley's statistics and user-defined ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution
from parley.client.contract.model_state_encoding import Floats, State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import Set

SCALE_BITS = 20
"""Scale bits of the grid of sums, in a ring of 64 bits."""


@dataclass(frozen=True, kw_only=True)
class NoModel:
    """Model of a statistic, which learns none; it accepts any labels."""

    features: int
    classes: int

    def check_labels(self, labels: NDArray[np.generic]) -> None:
        """Accept any labels."""


class ReleasedAggregate(ABC):
    """Algorithm whose result is the noisy sum or average itself, stored as `theta`."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """d: coordinates of a contribution."""

    def init(self) -> State:
        """Return zeros."""
        return {"theta": np.zeros(self.dimension)}

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """Return what was released as the result."""
        return {"theta": average}

    def model_of(self, state: State) -> NDArray[np.float64]:
        """Return what was released."""
        return state["theta"]

    def released(self, state: State) -> dict[str, float]:
        """Return no further values; a subclass may return values that follow from the result."""
        return {}


@dataclass(frozen=True, kw_only=True)
class SumOfRecords(ReleasedAggregate):
    """Sum of a bounded vector per record; one release.

    Attributes:
        bound: entries of a party's sum are clamped to ±bound, a whole number. No sum reaches it if
            it is the largest party's number of records. Clamping never moves two sums further
            apart.
    """

    assumption: ClassVar[str] = ""  # contributions are whole numbers

    neighbouring: Neighbouring
    bound: float

    def __post_init__(self) -> None:
        if not 1 <= self.bound < 2.0**40:
            raise ValueError(f"Expected a bound from 1 to 2^40, got {self.bound}.")
        if self.bound != math.floor(self.bound):
            raise ValueError(f"Expected a whole number as a bound, got {self.bound}.")

    @abstractmethod
    def sum_records(self, rows: NDArray[np.floating[Any]], labels: NDArray[Any]) -> Floats:
        """Return `[d]` of `[n, p]` rows and labels `[n]`: exact, for any order and grouping."""

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's own sum."""
        values = np.empty((block.parties, self.dimension))
        for party, (begin, end) in enumerate(pairwise(block.offsets)):
            values[party] = self.sum_records(block.features[begin:end], block.labels[begin:end])
        np.clip(values, -self.bound, self.bound, out=values)
        return Contribution(values=values, failed=())

    def build_claim(self, lies_in: Set, grid_bits: int = 0, **other_fields: Any) -> Claim:
        """Claim that each record adds a vector of whole numbers of 2^-b from a set."""
        return Claim(
            dimension=self.dimension,
            bound=self.bound,
            lies_in=lies_in,
            grid_bits=grid_bits,
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
            scale_bits=max(SCALE_BITS, grid_bits),
            **other_fields,
        )
