"""Evaluate a learned model on the parties' held-out records: one noisy histogram.

With two labels a party counts its held-out records by score and label. Cell 2k + y counts those of
label y whose probability of the second label is in interval k, between public edges. The ROC curve,
calibration and the results of each threshold follow as post-processing
(`parley.server.records.histogram_evaluation`). With K > 2 labels it counts by true and predicted
label: cell K·true + predicted. Each record adds 1 to one cell, for any model (the histogram query
of Dwork & Roth 2014, section 3.3). How many records a party holds out stays private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    get_settings,
)
from parley.client.algorithms.base import Claim, Contribution, FederatedAlgorithm, PublicFacts
from parley.client.algorithms.noisy_sum_algorithms import SCALE_BITS, ReleasedAggregate
from parley.client.algorithms.pca_projection import project_rows
from parley.client.algorithms.registry import ALGORITHMS
from parley.client.algorithms.score_edges import check_edges
from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.assumptions import OWN_NETWORK
from parley.client.contract.model_state_encoding import Floats, State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass
from parley.client.data.party_block import PartyBlock
from parley.client.models.linear_models import LinearModel
from parley.client.own_code.own_code_names import is_own_code
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import Set

_MAX_CELL_COUNT = 2.0**24
"""Maximum count of a cell: a party's count is clamped to it, because its number is private."""


@dataclass(frozen=True, kw_only=True)
class HeldOutCounts(ReleasedAggregate):
    """Counts of held-out records by label and score; one release after the rounds.

    Attributes:
        edges: ascending probabilities of the second label, between intervals [edge, next edge);
            unused with more than two labels.
    """

    kind: ClassVar[str] = "held-out-counts"

    learner: FederatedAlgorithm
    edges: tuple[float, ...]
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        check_edges(self.edges)

    @property
    def model(self) -> Any:
        """Model of the learner."""
        return self.learner.model

    @property
    def classes(self) -> int:
        """Number of labels, K."""
        return int(self.model.classes) or 2

    @property
    def dimension(self) -> int:
        """Two cells per interval, or K²."""
        return 2 * (len(self.edges) + 1) if self.classes == 2 else self.classes**2

    @property
    def has_probabilities(self) -> bool:
        """Whether scores are probabilities, rather than only a ranking."""
        return self.model.compute_probabilities(np.zeros((1, self.classes))) is not None

    @property
    def binary_edges(self) -> tuple[float, ...]:
        """The edges if they are used, otherwise ()."""
        return self.edges if self.classes == 2 else ()

    @property
    def assumption(self) -> str:
        """Assumption of a user-defined network only: its output for a record depends only on that
        record.
        """
        return OWN_NETWORK if is_own_code(getattr(self.model, "kind", "")) else ""

    def init(self) -> State:
        """Return a model like the learner's."""
        return {"theta": self.learner.model_of(self.learner.init())}

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's own histogram, of whole numbers."""
        values = np.empty((block.parties, self.dimension))
        for party, (begin, end) in enumerate(pairwise(block.offsets)):
            predicted = self._predict_cells(state["theta"], block.features[begin:end])
            labels: NDArray[Any] = block.labels[begin:end]
            if self.classes == 2:
                cells = 2 * predicted + (labels > 0)
            else:
                cells = self.classes * labels.astype(np.int64) + predicted
            cells = np.clip(cells, 0, self.dimension - 1)  # for any label
            values[party] = np.bincount(cells, minlength=self.dimension)
        np.clip(values, 0, _MAX_CELL_COUNT, out=values)
        return Contribution(values=values, failed=())

    def _predict_cells(self, theta: Floats, rows: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """Return `[n]` the interval of each row's score, or its predicted label, from that row
        only.

        No probability is computed: the library's exp may round a number differently next to others.
        Instead the edges are converted to margins once, and margins are compared with them.
        """
        margins = self._compute_margins(theta, rows)
        if self.classes > 2:
            return np.asarray(margins.argmax(axis=1))
        log_odds = margins[:, -1] - margins[:, 0] if margins.shape[1] > 1 else margins[:, 0]
        return np.asarray(np.searchsorted(self._compute_edge_margins(), log_odds, side="right"))

    def _compute_margins(self, theta: Floats, rows: NDArray[np.floating[Any]]) -> Floats:
        """Compute `[n, outputs]` margins, each from its row only.

        A linear model uses exact products. Other models take one row at a time, each at the same
        address. Next to other rows, a row's last digits may depend on those rows and their number
        (`parley.client.dp_sgd.invariant_pass_layout`), and an attacker may choose a θ at which
        these digits decide. One more or one fewer record would then change other records' cells,
        and move the counts by more than one cell.
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
        """Return the edges as margins: ln(e/(1 − e)), or tan(π(e − ½)) if margins only rank."""
        if self.has_probabilities:
            return np.array([math.log(edge) - math.log1p(-edge) for edge in self.edges])
        return np.array([math.tan(math.pi * (edge - 0.5)) for edge in self.edges])

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """Return the same model, with the noisy sum of the histograms."""
        return {**state, "counts": average}

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """Claim one cell per record, for any records and model."""
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=_MAX_CELL_COUNT,
            # Clamping never moves two histograms further apart.
            lies_in=Set.interval(1, 1).spread_over_cells(self.dimension),
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
            classes=int(self.model.classes) or 1,
            scale_bits=SCALE_BITS,
        )


def to_task(algorithm: HeldOutCounts) -> dict[str, Any]:
    """Return the algorithm as plain JSON values."""
    settings = get_settings(algorithm, "learner")
    return {"learner": describe_task(algorithm.learner), "settings": settings}


def from_task(task: Mapping[str, Any], party: PartyResources) -> HeldOutCounts:
    """Build the algorithm again, the inverse of `to_task`. Raises DecodingError."""
    learner = _get_learner_task(task)
    check_keys(task, "learner", "settings")
    built = ALGORITHMS[learner["kind"]].from_task(learner, party)
    return decode_dataclass(HeldOutCounts, task["settings"], learner=built)


def parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the learner's model, and a lower bound on its parameters."""
    learner = _get_learner_task(task)
    return ALGORITHMS[learner["kind"]].parse_size(learner)


def _get_learner_task(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the task that a model is learned by: one whose answers can be counted."""
    learner = task.get("learner")
    if not isinstance(learner, Mapping) or not _is_learner(learner.get("kind")):
        known = ", ".join(filter(_is_learner, ALGORITHMS))
        raise DecodingError(f"Expected a learner of {known}, got another one.")
    return learner


def _is_learner(kind: Any) -> bool:
    """Return whether an algorithm of that name learns a model in rounds."""
    row = ALGORITHMS.get(kind) if isinstance(kind, str) else None
    return row is not None and not (row.before_rounds or row.after_rounds)


SPEC = AlgorithmSpec(
    title="counts of held-out records",
    to_task=to_task,
    from_task=from_task,
    parse_size=parse_size,
    after_rounds=True,
    summed=True,
)
