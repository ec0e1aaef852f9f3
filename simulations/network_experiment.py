"""A simulation's world where parties train a network: classes, components, and what is measured.

The non-private baseline is the same network trained by Adam on all parties' records in one place,
for as many steps, and at least 500, without clipping or noise: what privacy and federation together
cost. Simulation-only, as all figures that look across parties.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from client.block import PartyBlock
from client.dp_sgd import NotFinite, PartyData, train_party
from client.federated import FederatedAveraging
from client.networks import Network
from client.records import as_classes
from privacy.stream import NoiseStream
from server.federated import network_for
from server.job import Job, JobError
from server.release import Federation
from simulations.experiment import Experiment

__all__ = ["NetworkExperiment", "leading", "network_experiment", "project"]

_BASELINE_STEPS = 500

_SAMPLE = 10_000
"""Training records on which a simulation's loss is measured, at most: evenly spread."""


@dataclass(frozen=True, kw_only=True)
class NetworkExperiment(Experiment):
    """The data of a simulation with a network.

    Attributes:
        network: what is learned.
        algorithm: how, once it is known: the baseline trains as long.
        components: `[p, k]` principal scaled directions that rows were projected on, else None.
    """

    model: Any
    network: Network
    algorithm: FederatedAveraging | None = None
    components: NDArray[np.float64] | None = None
    _kept: dict[str, NDArray[np.float64]] = field(default_factory=dict, compare=False)

    def loss(self, theta: NDArray[np.float64]) -> float:
        """Mean cross-entropy on training records of all parties (on 10,000 of them at most)."""
        rows = np.linspace(0, len(self.block.labels) - 1, _SAMPLE).astype(np.int64)
        if len(self.block.labels) <= _SAMPLE:
            rows = np.arange(len(self.block.labels))
        return self.network.loss(theta, self.block.features[rows], self.block.labels[rows])

    def optimum(self) -> NDArray[np.float64]:
        """The baseline's parameters: trained once, on all records in one place."""
        if self.algorithm is None:
            raise ValueError("Expected the algorithm before the baseline, got none.")
        if "theta" not in self._kept:
            own = self.algorithm.training
            training = replace(
                own,
                steps=max(_BASELINE_STEPS, own.steps * self.algorithm.rounds),
                clip_norm=None,
                noise_multiplier=0.0,
                clipped_share=0.0,
                optimiser="adam",
                learning_rate=1e-3,
            )
            count = len(self.block.labels)
            data = PartyData(
                features=self.network.rows(self.block.features),
                labels=torch.as_tensor(
                    np.asarray(self.block.labels, dtype=np.int64), device=self.network.device
                ),
                divisor=count,
                batches=NoiseStream.from_seed(0, "baseline"),
                noise=NoiseStream.from_seed(0, "baseline-noise"),
            )
            theta = self.algorithm.init()["theta"]
            # Where it cannot be trained, the start is all there is to compare with.
            with suppress(NotFinite):
                theta = train_party(self.network, theta, data, training).theta[0]
            self._kept["theta"] = theta
        return self._kept["theta"]

    def evaluate_every(self, setting: int | str) -> int:
        """Every round: an evaluation is cheap beside a round of training."""
        return 1 if setting == "auto" else int(setting)


def network_experiment(
    job: Job,
    *,
    rows: NDArray[np.floating],
    labels: NDArray[np.generic],
    test_rows: NDArray[np.floating],
    test_labels: NDArray[np.generic],
    sizes: NDArray[np.int64],
    classes: int,
    federation: Federation,
    fingerprint: str,
) -> NetworkExperiment:
    """The experiment of a network; `rows` are those of party after party, of norm at most 1.

    Components that are declared public are taken from the test rows here; private ones are
    computed by a release (`simulations.components`), and the rows are projected then.

    Raises:
        JobError, NetworkError: no such components, a model that cannot be built.
    """
    try:
        labels, count = as_classes(labels, classes)
        test_labels, _ = as_classes(test_labels, classes)
    except ValueError as error:
        raise JobError(str(error)) from error
    features = rows.shape[1]
    width = features
    if job.model.kind == "pca-mlp":
        width = job.model.components
        if width > features:
            raise JobError(
                f"Expected model.components of at most {features}, the number of features, got "
                f"{width}."
            )
    network = network_for(job, features=width, classes=count)
    experiment = NetworkExperiment(
        block=PartyBlock(
            features=rows, labels=labels, offsets=np.concatenate([[0], np.cumsum(sizes)])
        ),
        test_features=test_rows,
        test_labels=test_labels,
        model=network,
        network=network,
        lambda_=0.0,
        federation=federation,
        fingerprint=fingerprint,
        size_weights=job.parties.weights == "size",
    )
    if job.model.kind != "pca-mlp" or job.model.pca == "private":
        return experiment
    if len(test_rows) < width:
        raise JobError(
            f"Expected at least {width} held-out records to take {width} public components from, "
            f"got {len(test_rows)}."
        )
    held = test_rows.astype(np.float64)
    return project(experiment, leading(held.T @ held, width))


def leading(moments: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """`[p, count]` eigenvectors of the largest eigenvalues λ, each scaled by λ^(−1/4).

    Half-way to whitening: minor directions are learned sooner, and none is blown up. The scale
    keeps Σ λ s² as it was, so that rows stay near the length they had. All of it is
    post-processing of `moments`, `[p, p]` symmetric.
    """
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    if values[0] <= 0:
        return np.ascontiguousarray(vectors)
    values = np.maximum(values, values[0] * 1e-4)
    scale = values**-0.25 * math.sqrt(values.sum() / np.sqrt(values).sum())
    return np.ascontiguousarray(vectors * scale)


def project(experiment: NetworkExperiment, components: NDArray[np.float64]) -> NetworkExperiment:
    """The experiment with every row projected on the scaled components."""
    block = experiment.block
    dtype = block.features.dtype
    directions = components.astype(dtype)
    return replace(
        experiment,
        block=replace(block, features=block.features @ directions),
        test_features=experiment.test_features @ directions,
        components=components,
    )
