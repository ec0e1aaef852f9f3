"""Principal components for a `pca-mlp`: post-processing of released second moments, or public.

The release is `parley.server.planning.second_moments`; the components travel in the run's state.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.second_moments import check_components
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.model_file import tensors_of


def with_components(
    algorithm: FederatedAlgorithm, components: NDArray[np.float64]
) -> FederatedAlgorithm:
    """Federated averaging whose rows are projected on `[p, k]` components."""
    networked: Any = algorithm
    settings: dict[str, Any] = {"components": components}
    return cast(FederatedAlgorithm, replace(networked, **settings))


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


def public_components(job: Job, *, features: int) -> NDArray[np.float64] | None:
    """`[p, k]` the tensor `components` of `model.pca-file`; None where the job has no such.

    Args:
        features: p, of the rows before they are projected.

    Raises JobError.
    """
    path, count = job.model.components_file, job.model.projected
    if count is None or job.model.components_share:
        return None
    if not path:
        raise JobError(
            "Expected model.pca-file with model.pca = 'public' and real parties, got none: the "
            "server has no records to take components from."
        )
    try:
        components = tensors_of(path)["components"]
        check_components(components)
    except KeyError:
        raise JobError(f"Expected a tensor `components` in model.pca-file = {path}.") from None
    except ValueError as error:
        raise JobError(f"model.pca-file = {path}: {error}") from error
    if components.shape != (features, count):
        raise JobError(
            f"Expected components of {features} features, model.components = {count}, in "
            f"model.pca-file = {path}, got {components.shape[0]} features, {components.shape[1]} "
            "components."
        )
    return np.asarray(components, dtype=np.float64)
