"""Records that parties train on, for one party or for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parley.privacy.sampling.random_stream import NoiseStream


@dataclass(frozen=True, kw_only=True, repr=False)
class PartyData:
    """One party's records on the network's device, and its two streams.

    Attributes:
        features, labels: `[n, p]`, `[n]`.
        divisor: n of q·n, a public number.
    """

    features: Tensor
    labels: Tensor
    divisor: int
    batches: NoiseStream
    noise: NoiseStream


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingParties:
    """Data of B parties, with the parties' records one after the other.

    Attributes:
        features, labels: `[N, p]`, `[N]`.
        offsets: `[B + 1]` position at which each party's records begin.
        divisors: `[B]` n of q·n per party, public numbers.
        batches, noise: `[B]` streams; parties may share them.
    """

    features: Tensor
    labels: Tensor
    offsets: NDArray[np.int64]
    divisors: NDArray[np.int64]
    batches: Sequence[NoiseStream]
    noise: Sequence[NoiseStream]

    @classmethod
    def from_parties(cls, parties: Sequence[PartyData]) -> TrainingParties:
        """Combine these parties, in their order."""
        return cls(
            features=torch.cat([each.features for each in parties]),
            labels=torch.cat([each.labels for each in parties]),
            offsets=np.cumsum([0, *(len(each.labels) for each in parties)]),
            divisors=np.array([each.divisor for each in parties]),
            batches=[each.batches for each in parties],
            noise=[each.noise for each in parties],
        )

    def __len__(self) -> int:
        return len(self.divisors)

    def __getitem__(self, row: int) -> PartyData:
        """Return one party's data."""
        own = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
        return PartyData(
            features=self.features[own],
            labels=self.labels[own],
            divisor=int(self.divisors[row]),
            batches=self.batches[row],
            noise=self.noise[row],
        )
