"""Define a simulation's experiment with a network: classes, components, baseline and metrics.

The non-private baseline is the same network trained by Adam on all parties' records in one place,
without clipping or noise. It shows what privacy and federation together cost. It sees as many
records as the parties in the rounds do, so it costs no more than they. It takes at least 500 steps:
if the rounds have fewer, its batches are smaller, but not below 64 records. It exists only in a
simulation, like all numbers computed across parties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD
from parley.client.algorithms.federated_averaging import FederatedAveraging
from parley.client.algorithms.pca_projection import project_rows
from parley.client.algorithms.registry import get_algorithm_spec
from parley.client.data.class_indices import to_classes
from parley.client.dp_sgd.local_training import train_party
from parley.client.dp_sgd.training_data import PartyData
from parley.privacy.sampling.random_stream import NoiseStream
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.job import Job
from parley.server.jobs.network_algorithms import build_network, compute_model_width
from parley.server.jobs.section_base import JobError
from parley.server.planning.principal_components import compute_components, load_public_components
from parley.simulations.data.prepared_data import PreparedData
from parley.simulations.data.simulated_experiment import Experiment, Predictions

_BASELINE_STEPS, _BASELINE_BATCH = 500, 64
"""Minimum steps of the baseline, and the expected batch below which they do not make it smaller."""

_SAMPLE = 10_000
"""Maximum number of training records for a simulation's loss, evenly spaced."""


@dataclass(frozen=True, kw_only=True)
class NetworkExperiment(Experiment):
    """The data of a simulation with a network.

    Attributes:
        algorithm: once it is known; the baseline trains as long.
    """

    model: Any
    algorithm: FederatedAveraging | DistributedDPSGD | None = None
    _cache: dict[str, NDArray[np.float64]] = field(default_factory=dict, compare=False)

    def compute_loss(self, theta: NDArray[np.float64]) -> float:
        """Return the mean cross-entropy on training records of all parties (on at most 10,000)."""
        rows = np.linspace(0, len(self.block.labels) - 1, _SAMPLE).astype(np.int64)
        if len(self.block.labels) <= _SAMPLE:
            rows = np.arange(len(self.block.labels))
        features, labels = self.block.dense_features[rows], self.block.labels[rows]
        return float(self.model.compute_loss(theta, features, labels))

    def compute_aggregated(self) -> None:
        """Return None, because networks are not averaged."""

    def compute_baseline(self) -> NDArray[np.float64]:
        """Return the same network, trained without noise."""
        return self.compute_optimum()

    def compute_optimum(self) -> NDArray[np.float64]:
        """Return the baseline's parameters, trained once, on all records in one place."""
        if self.algorithm is None:
            raise ValueError("Expected the algorithm before the baseline, got none.")
        if "theta" not in self._cache:
            own, count = self.algorithm.training, len(self.block.labels)
            taken = own.steps * self.algorithm.rounds
            steps = max(_BASELINE_STEPS, taken)
            rate = own.sampling_rate * self.algorithm.attendance.fraction
            training = replace(
                own,
                steps=steps,
                sampling_rate=min(rate, max(rate * taken / steps, _BASELINE_BATCH / count)),
                clip_norm=None,
                noise_multiplier=0.0,
                clipped_share=0.0,
                optimiser="adam",
                learning_rate=1e-3,
            )
            labels = np.asarray(self.block.labels, dtype=np.int64)
            data = PartyData(
                features=self.model.to_tensor(self.block.dense_features),
                labels=torch.as_tensor(labels, device=self.model.device),
                divisor=count,
                batches=NoiseStream.from_seed(0, "baseline"),
                noise=NoiseStream.from_seed(0, "baseline-noise"),
            )
            theta = self.algorithm.init()["theta"]
            trained = train_party(self.model, theta, data, training).theta[0]
            # If it cannot be trained, its initial parameters serve as the baseline.
            self._cache["theta"] = trained if np.isfinite(trained).all() else theta
        return self._cache["theta"]

    def predict_held_out(self, theta: NDArray[np.float64]) -> Predictions | None:
        """Return a network's predictions of the held-out records; None if they are not finite."""
        if not len(self.test_labels):
            return None
        scores = self.model.compute_margins(theta, self.test_features)
        if not np.isfinite(scores).all():
            return None
        return Predictions(
            values=self.model.compute_probabilities(scores),
            truth=np.asarray(self.test_labels, np.int64),
            names=self.data.label_names,
            probabilities=True,
        )

    def bind_algorithm(self, algorithm: FederatedAlgorithm) -> Self:
        """Return the experiment with the baseline of this training, and every row on its
        components.
        """
        if get_algorithm_spec(algorithm.kind).before_rounds:
            return self
        training: Any = algorithm
        world, components = replace(self, algorithm=training), training.components
        if components is None:
            return world
        block = self.block
        return replace(
            world,
            block=replace(block, features=project_rows(block.dense_features, components)),
            test_features=self.test_features @ components,
            components=components,
        )

    def evaluate_every(self, setting: int | str) -> int:
        """Return 1 by default: an evaluation is cheap compared with a round of training."""
        return 1 if setting == "auto" else int(setting)


def build_network_experiment(
    job: Job, data: PreparedData, shared: Mapping[str, Any]
) -> NetworkExperiment:
    """Build the experiment of a network; rows are ordered by party, with norm at most 1.

    Public components are those of `model.pca-file`, or are computed here from the test rows.
    Private ones are computed by a release (`parley.server.planning.run_stages`). Rows are projected
    when the rounds begin (`NetworkExperiment.bind_algorithm`).

    Args:
        shared: fields that every experiment on these data has.

    Raises:
        JobError, NetworkError: no such components, or a model that cannot be built.
    """
    with translate_errors(ValueError, JobError):
        labels, count = to_classes(data.labels, data.classes)
        test_labels, _ = to_classes(data.test_labels, data.classes)
    features, test_rows = data.rows.shape[1], data.test_rows
    width = compute_model_width(job, features)
    experiment = NetworkExperiment(
        block=data.build_block(labels),
        test_labels=test_labels,
        model=build_network(job, features=width, classes=count),
        **shared,
    )
    if job.model.component_count is None or job.model.components_share:
        return experiment
    if job.model.components_file:
        return replace(experiment, components=load_public_components(job, features=features))
    if len(test_rows) < width:
        raise JobError(
            f"Expected at least {width} held-out records for computing {width} public "
            f"components, got {len(test_rows)}."
        )
    held = test_rows.astype(np.float64)
    return replace(experiment, components=compute_components(held.T @ held, width))
