"""Right and wrong answers of a learned model on the parties' held-out records: one noisy histogram.

A party counts its own held-out records by what the model says of them: cell 0 is "right", cell 1
"wrong"; by class, cells 2k and 2k + 1 are those of the records whose label is class k. Every record
adds 1 to one cell, whatever the model is (the histogram query of Dwork & Roth 2014, section 3.3).
How many records a party holds out stays private: the wrong answers are counted beside the right
ones.

    >>> import numpy as np
    >>> accuracy_interval(np.array([90.0, 10.0]), within=3.0)
    (0.9, 0.87, 0.93)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, FederatedAlgorithm, PublicFacts
from parley.client.algorithms.own import is_own
from parley.client.algorithms.second_moments import projected
from parley.client.algorithms.sums import SCALE_BITS
from parley.client.contract.assumptions import REMEMBERED
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.state import State
from parley.client.data.block import PartyBlock
from parley.client.models.linear import LinearModel
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.kernel.sets import Set
from parley.privacy.sampling.stream import Randomness

_MOST = 2.0**24
"""Records of a cell beyond which a party's count is clamped, since its number is private."""


@dataclass(frozen=True, kw_only=True)
class HeldOutCounts:
    """How many held-out records a model is right and wrong about; one release after the rounds.

    Attributes:
        by_class: a pair of counts for each class of the label.
    """

    kind: ClassVar[str] = "held-out-counts"

    learner: FederatedAlgorithm
    by_class: bool
    neighbouring: Neighbouring

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
        """Two cells, or two for each class."""
        return 2 * (self.classes if self.by_class else 1)

    @property
    def assumption(self) -> str:
        """None, but of one's own network: a model says of a record what it says of it alone."""
        return REMEMBERED if is_own(getattr(self.model, "kind", "")) else ""

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
            said = self._said(state["theta"], block.features[begin:end])
            labels: NDArray[Any] = block.labels[begin:end]
            cells = (said != labels).astype(np.int64)
            if self.by_class:
                signed = not self.model.classes
                cells += 2 * (labels > 0 if signed else labels).astype(np.int64)
            cells = np.clip(cells, 0, self.dimension - 1)  # whatever its label is
            values[party] = np.bincount(cells, minlength=self.dimension)
        np.clip(values, 0, _MOST, out=values)
        return Contribution(values=values, failed=())

    def _said(
        self, theta: NDArray[np.float64], rows: NDArray[np.floating[Any]]
    ) -> NDArray[np.generic]:
        """`[n]` labels that the model says, each of its row alone.

        Of a linear model by exact products, of another one row at a time, each at the same address:
        beside others a row's last digits may depend on who and how many they are
        (`parley.client.dp_sgd.apart`), and somebody may choose a θ where that decides. One record
        more or less would then turn others' answers, and move more than its own cell.
        """
        if isinstance(self.model, LinearModel):
            margins = projected(rows, theta.reshape(-1, rows.shape[1]).T)
            return self.model.loss.predict(margins if self.model.classes else margins[:, 0])
        alone = np.empty((1, rows.shape[1]), rows.dtype)
        said = []
        for row in rows:
            alone[0] = row
            said.append(self.model.predict(theta, alone))
        return np.concatenate(said)

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """The model as it was, with the noisy sum of the histograms beside it."""
        return {**state, "counts": average}

    def model_of(self, state: State) -> NDArray[np.float64]:
        """The model that was measured."""
        return state["theta"]

    def released(self, state: State) -> dict[str, float]:
        """Nothing beside the counts."""
        del state
        return {}

    def claim(self, facts: PublicFacts | None = None) -> Claim:
        """One cell, whatever the parties hold and the model says."""
        del facts
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=_MOST,
            # Clamping brings no two histograms further apart.
            lies_in=Set.interval(1, 1).in_one_of(self.dimension),
            unit=Unit.RECORD,
            neighbouring=self.neighbouring,
            classes=int(self.model.classes) or 1,
            scale_bits=SCALE_BITS,
        )


def learner_of(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """What learned the model that an algorithm measures; itself, where it learns."""
    return algorithm.learner if isinstance(algorithm, HeldOutCounts) else algorithm


def accuracy_interval(
    counts: NDArray[np.float64], *, within: float
) -> tuple[float, float, float] | None:
    """Accuracy from two noisy counts, and where that without noise lies; None where none is left.

    Of c right answers and w wrong ones, counted as c + a and w + b with |a|, |b| ≤ t, the two
    accuracies differ by (a·w − b·c) / ((c + w)(c + a + w + b)): at most t over the noisy total.

    Args:
        counts: `[2]` right and wrong, with noise.
    """
    right, wrong = (max(0.0, float(count)) for count in counts)
    total = right + wrong
    if total <= 0:
        return None
    low, high = (right - within) / total, (right + within) / total
    return right / total, max(0.0, low), min(1.0, high)
