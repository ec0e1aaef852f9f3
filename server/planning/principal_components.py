"""Principal components for a `pca-mlp`: by one private release ahead of the first round, or public.

Release 0 is the noisy sum of second moments (`parley.client.algorithms.second_moments`), through
the same secure sum as every other release, whoever the parties are. The components are
post-processing of it; they travel in the run's state. Parties that drop out or decline are missing
from the sum, which is noisier for it, never less private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.second_moments import (
    SCALE_BITS,
    SecondMoments,
    Triangle,
    check_components,
)
from parley.client.contract.grid import noise_tail
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.guarantee import Adversary, Neighbouring, NoisePoint
from parley.privacy.accounting.rounding import quotient_up
from parley.privacy.accounting.zcdp import gaussian_mu
from parley.privacy.mechanisms.table import Gaussian
from parley.secure_agg.encoding import FixedPoint
from parley.server.jobs.job import Job, JobError

if TYPE_CHECKING:
    from parley.server.planning.federation import Federation

__all__ = [
    "ReleaseAhead",
    "components_mu",
    "leading",
    "model_width",
    "public_components",
    "release_ahead",
    "with_components",
]

_RING_BITS = 64

_MOST_RECORDS = 2.0**24
"""Records of a party beyond which its sum is clamped, where its own number of them is private."""


@dataclass(frozen=True, kw_only=True)
class ReleaseAhead:
    """Release 0.

    Attributes:
        moments: what is summed.
        plan: how.
    """

    moments: SecondMoments
    plan: ReleasePlan


def model_width(job: Job, features: int) -> int:
    """Columns that the job's network sees, of rows with `features` columns.

    Raises:
        JobError: more components than columns.
    """
    if job.model.kind != "pca-mlp":
        return features
    if job.model.components > features:
        raise JobError(
            f"Expected model.components of at most {features}, the number of features, got "
            f"{job.model.components}."
        )
    return job.model.components


def components_mu(job: Job) -> float:
    """μ of the components' release; 0 where there is none."""
    if job.model.kind != "pca-mlp" or job.model.pca != "private":
        return 0.0
    whole = gaussian_mu(job.privacy.epsilon, job.privacy.delta)
    return math.sqrt(job.model.pca_share) * whole


def release_ahead(
    job: Job, *, features: int, federation: Federation, rounds: ReleasePlan
) -> ReleaseAhead | None:
    """The release ahead of the first round; None where the job has none.

    Args:
        features: p, of the rows before they are projected.
        federation: the public facts about the parties.
        rounds: the plan of the rounds, which it shares parties and relation with.

    Raises:
        RingTooSmall: the largest sum does not fit.
    """
    if not components_mu(job):
        return None
    moments = _moments(job, features, federation)
    mechanism = _mechanism(job, moments)
    encoding = FixedPoint(
        scale_bits=SCALE_BITS, ring_bits=_RING_BITS, bound=moments.bound * (1 + 1e-9)
    )
    encoding.check_capacity(rounds.parties, noise_tail(mechanism))
    plan = replace(
        rounds.with_primary(
            sensitivity=_sensitivity(moments),
            mechanism=mechanism,
            noise_point=NoisePoint.SERVER,
            against=Adversary.ANALYST,
            calibration="exact",
            clip_norm=None,
        ),
        round_number=0,
        algorithm=moments.kind,
        dimension=moments.model.dimension,
        lipschitz=moments.claim().lipschitz,
        weights="uniform",
        encoding=encoding,
    )
    return ReleaseAhead(moments=moments, plan=plan)


def _moments(job: Job, features: int, federation: Federation) -> SecondMoments:
    relation = Neighbouring(job.privacy.neighbouring)
    private = relation is Neighbouring.ADD_OR_REMOVE_ONE
    return SecondMoments(
        model=Triangle(features=features),
        neighbouring=relation,
        bound=_MOST_RECORDS if private else float(federation.max_records),
    )


def _sensitivity(moments: SecondMoments) -> float:
    return moments.claim().covered


def _mechanism(job: Job, moments: SecondMoments) -> Gaussian:
    """The noise on the triangle, in grid units."""
    dimension = moments.model.dimension
    grid = 2.0**SCALE_BITS * _sensitivity(moments) + math.sqrt(dimension)
    # Rounded so that Δ/σ is not above the μ that the steps' noise was calibrated beside.
    sigma = quotient_up(grid, components_mu(job) * (1 - 1e-12))
    return Gaussian(sensitivity=grid, sigma=sigma, dimension=dimension)


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

    Raises:
        JobError: no file is named, it is not there, has no such tensor or one for other rows.
    """

    if job.model.kind != "pca-mlp" or job.model.pca == "private":
        return None
    path, count = job.model.pca_file, job.model.components
    if not path:
        raise JobError(
            "Expected model.pca-file with model.pca = 'public' and real parties, whose server has "
            "no records to take components from, got none."
        )
    try:
        components = load_file(path)["components"]
        check_components(components)
    except KeyError:
        raise JobError(f"Expected a tensor `components` in model.pca-file = {path}.") from None
    except (OSError, SafetensorError, ValueError) as error:
        raise JobError(f"model.pca-file = {path}: {error}") from error
    if components.shape != (features, count):
        raise JobError(
            f"Expected components of {features} features, model.components = {count}, in "
            f"model.pca-file = {path}, got {components.shape[0]} features, {components.shape[1]} "
            "components."
        )
    return np.asarray(components, dtype=np.float64)
