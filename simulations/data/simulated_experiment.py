"""Define a simulation's experiment: the parties' data, and what only a simulation may know.

Everything computed across parties (loss, accuracy, the non-private optimum) exists only in a
simulation. In a real run each would be a separate release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.data.party_block import PartyBlock
from parley.client.models.linear_models import LinearModel
from parley.client.solvers.pooled_optimum import solve_pooled_optimum
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.section_base import JobError
from parley.server.planning.run_stages import PlanInputs
from parley.simulations.data.prepared_data import PreparedData

_MAX_CHEAP_ENTRIES = 500_000
"""Maximum number of entries of the data matrix at which every round is evaluated."""


_CLOSE = 1e-6
"""Gradient norm of the optima that are averaged without privacy."""

_MAX_SOLVABLE_ENTRIES = 10**9
"""Maximum number of entries of the data matrix, times outputs, at which the optimum is computed,
which takes minutes.
"""


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """A model's predictions of records with known labels.

    Attributes:
        values: `[N, K]` probabilities, or `[N]` scores in [0, 1]; `[N]` values of targets.
        truth: `[N]` classes 0..K−1, or targets.
        names: of the labels; empty for targets.
        probabilities: whether the values are probabilities, and do not only rank.
    """

    values: NDArray[np.float64]
    truth: NDArray[Any]
    names: tuple[str, ...] = ()
    probabilities: bool = False


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The data of a simulation.

    Attributes:
        data: as read and prepared, with facts about them.
        block: the parties' records, rows prepared, labels as the model takes them.
        test_features, test_labels: `[N_test, p]`, `[N_test]` held out before the split.
        size_weights: whether parties are weighted by size.
        components: `[p, k]` scaled principal directions on which rows are, or will be, projected.
    """

    data: PreparedData
    block: PartyBlock
    test_features: NDArray[np.floating]
    test_labels: NDArray[np.generic]
    model: LinearModel
    lambda_: float
    federation: Federation
    size_weights: bool
    components: NDArray[np.float64] | None = None

    @property
    def plan_inputs(self) -> PlanInputs:
        """What jobs on these data are planned for."""
        return PlanInputs(
            model=self.model,
            federation=self.federation,
            features=self.block.features.shape[1],
            components=self.components,
        )

    @cached_property
    def held_out(self) -> PartyBlock:
        """Held-out records divided among the parties one by one, in their order.

        Raises:
            JobError: fewer than parties.
        """
        count, parties = len(self.test_labels), self.block.parties
        if count < parties:
            raise JobError(
                f"Expected held-out records for each of {parties} parties with evaluation.kind = "
                f"'federated' (data.test-fraction, data.test-source), got {count}."
            )
        owners = np.arange(count) % parties
        order = np.argsort(owners, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owners))])
        features, labels = self.test_features[order], self.test_labels[order]
        return PartyBlock(features=features, labels=labels, offsets=offsets)

    @cached_property
    def party_weights(self) -> NDArray[np.float64]:
        """`[B]` w_j of the federated objective Σ w_j J_j, summing to 1."""
        sizes = self.block.sizes.astype(np.float64)
        weights = sizes if self.size_weights else np.ones_like(sizes)
        return np.asarray(weights / weights.sum())

    def compute_loss(self, theta: NDArray[np.float64]) -> float:
        """Return the objective F(θ) = Σ w_j J_j(θ) on the training records, with the λ term."""
        losses = self.model.losses(theta, self.block)
        return float(self.party_weights @ losses + self.lambda_ / 2 * theta @ theta)

    def compute_accuracy(self, theta: NDArray[np.float64]) -> float | None:
        """Return the accuracy (R² of ridge) on the held-out records, or None.

        It is None without held-out records; so is the R² of targets that are all equal.
        """
        if not len(self.test_labels):
            return None
        measured = self.model.compute_metric(theta, self.test_features, self.test_labels)
        return measured if math.isfinite(measured) else None

    @cached_property
    def majority_accuracy(self) -> float | None:
        """Accuracy of always predicting the held-out records' most frequent label."""
        if not len(self.test_labels) or self.model.metric_name != "accuracy":
            return None
        _, counts = np.unique(self.test_labels, return_counts=True)
        return float(counts.max() / counts.sum())

    def compute_optimum(self) -> NDArray[np.float64]:
        """Return the non-private optimum θ* of the federated objective, computed once."""
        return self._optimum

    @cached_property
    def _optimum(self) -> NDArray[np.float64]:
        return solve_pooled_optimum(
            self.model,
            self.block.features,
            self.block.labels,
            lambda_=self.lambda_,
            weights=np.repeat(self.party_weights / self.block.sizes, self.block.sizes),
        ).theta

    def compute_aggregated(self) -> NDArray[np.float64] | None:
        """Return the non-private mean of the parties' own optima; None if there are none."""
        from parley.client.solvers.local_optima import solve_local_optima  # noqa: PLC0415 - only few algorithms average optima

        optima = solve_local_optima(self.model, self.block, self.lambda_, _CLOSE)
        return np.asarray(self.party_weights @ optima.theta)

    def predict_held_out(self, theta: NDArray[np.float64]) -> Predictions | None:
        """Return a model's predictions of the held-out records; None if they are not finite."""
        margins = np.asarray(self.model.compute_margins(theta, self.test_features), np.float64)
        if not len(margins) or not np.isfinite(margins).all():
            return None
        loss = self.model.loss
        if loss.metric_name != "accuracy":
            return Predictions(values=margins, truth=np.asarray(self.test_labels, np.float64))
        chances = loss.compute_probabilities(margins)
        ranking = np.arctan(margins) / np.pi + 0.5 if chances is None else chances
        truth = np.asarray(self.test_labels, np.float64)
        return Predictions(
            values=np.asarray(ranking, np.float64),
            truth=(truth if loss.outputs > 1 else truth > 0).astype(np.int64),
            names=self.data.label_names,
            probabilities=chances is not None,
        )

    def bind_algorithm(self, algorithm: FederatedAlgorithm) -> Self:
        """Return the data as an algorithm sees them, here unchanged."""
        return self

    def compute_baseline(self) -> NDArray[np.float64] | None:
        """Return the non-private model for comparison; None if its data are too large to solve."""
        entries = self.block.features.size * self.model.loss.outputs
        return self.compute_optimum() if entries <= _MAX_SOLVABLE_ENTRIES else None

    def compute_metrics(
        self, theta: NDArray[np.float64], best: NDArray[np.float64]
    ) -> dict[str, float | None]:
        """Return a summary's metrics of a model, with the non-private ones."""
        loss, baseline_loss = self.compute_loss(theta), self.compute_loss(best)
        return {
            "loss": loss,
            "baseline_loss": baseline_loss,
            "excess_loss": loss - baseline_loss,
            "accuracy": self.compute_accuracy(theta),
            "baseline_accuracy": self.compute_accuracy(best),
            "majority_accuracy": self.majority_accuracy,
        }

    def evaluate(self, theta: NDArray[np.float64]) -> dict[str, float | None]:
        """Return a round line's metrics of a model."""
        return {"loss": self.compute_loss(theta), "accuracy": self.compute_accuracy(theta)}

    def evaluate_every(self, setting: int | str) -> int:
        """Return the number of rounds between evaluations; 0 for only at the end."""
        if setting != "auto":
            return int(setting)
        return 1 if self.block.features.size <= _MAX_CHEAP_ENTRIES else 10


@dataclass(frozen=True, kw_only=True)
class StatisticExperiment(Experiment):
    """The data of a simulation without a model: there is nothing to evaluate."""

    model: Any

    def predict_held_out(self, theta: NDArray[np.float64]) -> None:
        """Return None."""

    def compute_baseline(self) -> None:
        """Return None."""

    def compute_aggregated(self) -> None:
        """Return None."""

    def evaluate(self, theta: NDArray[np.float64]) -> dict[str, float | None]:
        """Return no metrics."""
        return {}
