"""What a learned model says of the parties' held-out records: one noisy histogram.

Of two labels a party counts its own held-out records by score and label: cell 2k + y holds those of
label y whose probability of the second label lies in interval k, between public edges. From it
follow, as post-processing, the ROC curve, calibration and what each threshold gives
(`parley.server.records.histogram_evaluation`). Of K > 2 labels it counts by true and predicted
label: cell K·true + predicted. Every record adds 1 to one cell, whatever the model is (the
    histogram query of
Dwork & Roth 2014, section 3.3). How many records a party holds out stays private.

    >>> choose_edges(records=24_000, epsilon=1.0)[:3], len(choose_edges(records=400, epsilon=1.0))
    ((0.05, 0.1, 0.15), 9)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, FederatedAlgorithm, PublicFacts
from parley.client.algorithms.noisy_sums import SCALE_BITS, ReleasedAggregate
from parley.client.algorithms.second_moments import project_rows
from parley.client.contract.assumptions import OWN_NETWORK
from parley.client.contract.model_state import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.models.linear_models import LinearModel
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import Set
from parley.safe_io.path_names import is_own_code

_MAX_CELL_COUNT = 2.0**24
"""Records of a cell beyond which a party's count is clamped, since its number is private."""


_MAX_EDGES = 999
_FINE_INTERVALS, _COARSE_INTERVALS, _FINE_FROM = 20, 10, 5_000
"""Intervals; and records times ε from which the noise leaves room for the finer ones: simulated
(`benchmarks/judging.py`), the area under the curve has less error by 20 of them there."""


def choose_edges(*, records: int, epsilon: float) -> tuple[float, ...]:
    """Probabilities between even intervals: 20, or 10 where the noise is large, by public facts.

    Args:
        records: how many the parties learn from at least.
    """
    count = _FINE_INTERVALS if records * epsilon >= _FINE_FROM else _COARSE_INTERVALS
    return tuple(k / count for k in range(1, count))


@dataclass(frozen=True, kw_only=True)
class HeldOutCounts(ReleasedAggregate):
    """How many held-out records have which label and score; one release after the rounds.

    Attributes:
        edges: probabilities of the second label, rising, between intervals [edge, next edge); of
            more labels unused.
    """

    kind: ClassVar[str] = "held-out-counts"

    learner: FederatedAlgorithm
    edges: tuple[float, ...]
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        check_edges(self.edges)

    @property
    def model(self) -> Any:
        """The learner's."""
        return self.learner.model

    @property
    def classes(self) -> int:
        """K of the labels."""
        return int(self.model.classes) or 2

    @property
    def dimension(self) -> int:
        """Two cells for each interval, or K²."""
        return 2 * (len(self.edges) + 1) if self.classes == 2 else self.classes**2

    @property
    def has_probabilities(self) -> bool:
        """Whether scores are probabilities, and don't only rank."""
        return self.model.compute_probabilities(np.zeros((1, self.classes))) is not None

    @property
    def binary_edges(self) -> tuple[float, ...]:
        """The edges, where they are used."""
        return self.edges if self.classes == 2 else ()

    @property
    def assumption(self) -> str:
        """None, but of one's own network: a model says of a record what it says of it alone."""
        return OWN_NETWORK if is_own_code(getattr(self.model, "kind", "")) else ""

    def init(self) -> State:
        """A model like the learner's."""
        return {"theta": self.learner.model_of(self.learner.init())}

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Every party's own histogram, of whole numbers."""
        del plan, randomness
        values = np.empty((block.parties, self.dimension))
        for party, (begin, end) in enumerate(pairwise(block.offsets)):
            predicted = self._predict_cells(state["theta"], block.features[begin:end])
            labels: NDArray[Any] = block.labels[begin:end]
            if self.classes == 2:
                cells = 2 * predicted + (labels > 0)
            else:
                cells = self.classes * labels.astype(np.int64) + predicted
            cells = np.clip(cells, 0, self.dimension - 1)  # whatever its label is
            values[party] = np.bincount(cells, minlength=self.dimension)
        np.clip(values, 0, _MAX_CELL_COUNT, out=values)
        return Contribution(values=values, failed=())

    def _predict_cells(
        self, theta: NDArray[np.float64], rows: NDArray[np.floating[Any]]
    ) -> NDArray[np.int64]:
        """`[n]` the interval of each row's score, or its predicted label: of that row alone.

        No probability is computed: the library's exp may round a number otherwise beside others.
        Edges are turned into margins instead, once, and a margin is compared with them.
        """
        margins = self._compute_margins(theta, rows)
        if self.classes > 2:
            return np.asarray(margins.argmax(axis=1))
        log_odds = margins[:, -1] - margins[:, 0] if margins.shape[1] > 1 else margins[:, 0]
        return np.asarray(np.searchsorted(self._compute_edge_margins(), log_odds, side="right"))

    def _compute_margins(
        self, theta: NDArray[np.float64], rows: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """`[n, outputs]` of each row alone.

        Of a linear model by exact products, of another one row at a time, each at the same address:
        beside others a row's last digits may depend on who and how many they are
        (`parley.client.dp_sgd.batch_invariance`), and somebody may choose a θ where that decides.
        One record more or less would then turn others' answers, and move more than its own cell.
        """
        if isinstance(self.model, LinearModel):
            return project_rows(rows, theta.reshape(-1, rows.shape[1]).T)
        single_row = np.empty((1, rows.shape[1]), rows.dtype)
        margins = np.empty((len(rows), self.classes))
        for position, row in enumerate(rows):
            single_row[0] = row
            margins[position] = self.model.compute_margins(theta, single_row)[0]
        return margins

    def _compute_edge_margins(self) -> NDArray[np.float64]:
        """The edges as margins: ln(e/(1 − e)), or where margins only rank tan(π(e − ½))."""
        if self.has_probabilities:
            return np.array([math.log(edge) - math.log1p(-edge) for edge in self.edges])
        return np.array([math.tan(math.pi * (edge - 0.5)) for edge in self.edges])

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """The model as it was, with the noisy sum of the histograms beside it."""
        return {**state, "counts": average}

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """One cell, whatever the parties hold and the model says."""
        del facts
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=_MAX_CELL_COUNT,
            # Clamping brings no two histograms further apart.
            lies_in=Set.interval(1, 1).spread_over_cells(self.dimension),
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
            classes=int(self.model.classes) or 1,
            scale_bits=SCALE_BITS,
        )


def get_learner(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """What learned the model that an algorithm measures; itself, where it learns."""
    return algorithm.learner if isinstance(algorithm, HeldOutCounts) else algorithm


def check_edges(edges: tuple[float, ...]) -> None:
    """Refuses what are no rising probabilities, or lack the ½ from which the label is answered."""
    rising = all(low < high for low, high in pairwise((0.0, *edges, 1.0)))  # NaN is not
    if not rising or 0.5 not in edges or len(edges) > _MAX_EDGES:
        raise ValueError(
            f"Expected at most {_MAX_EDGES} rising probabilities in (0, 1) as edges, 0.5 among "
            f"them, got {list(edges)[:12]}."
        )
