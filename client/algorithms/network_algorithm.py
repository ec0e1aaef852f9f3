"""`NetworkAlgorithm`: common part of the algorithms that train a network by DP-SGD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.iterative_algorithm import IterativeAlgorithm
from parley.client.algorithms.party_sampling import EVERYONE, PartySampling
from parley.client.contract.assumptions import BATCH_INVARIANCE
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.accounting.threat_model import Neighbouring, Unit


@dataclass(frozen=True, kw_only=True)
class NetworkAlgorithm(IterativeAlgorithm):
    """Algorithm whose parties compute clipped sums of a network's gradients.

    Attributes:
        components: `[p, k]` directions on which rows are projected beforehand; kept in the state.
    """

    model: Network
    unit: Unit
    training: LocalTraining
    rounds: int
    average: bool
    neighbouring: Neighbouring
    components: NDArray[np.float64] | None = None
    attendance: PartySampling = EVERYONE

    @property
    def assumption(self) -> str:
        """Assumption of per-record clipping; empty if clipping is exact."""
        return BATCH_INVARIANCE if self.unit is Unit.RECORD and not self.training.exact else ""
