"""Compute principal components for a `pca-mlp`, from released second moments or public ones.

Release 0 is the noisy sum of second moments (`parley.client.algorithms.second_moments`). It takes
the same secure sum as every other release, for all kinds of parties. Parties that drop out or
decline are missing from the sum, which makes it noisier, never less private. The components, a
post-processing of the release, are part of the run's state.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.pca_projection import check_components
from parley.client.algorithms.second_moments import SecondMoments, UpperTriangle
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.rounding import round_quotient_up
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.noise_multiplier_calibration import compute_components_mu
from parley.server.jobs.section_base import JobError
from parley.server.model_file import load_tensors
from parley.server.planning.noise_scale import NoiseScaling
from parley.server.planning.release_planner import plan_claim

_MAX_RECORDS = 2.0**24
"""Number of a party's records above which its sum is clipped, if that number is private."""


def compute_components(moments: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return `[p, count]` eigenvectors of the largest eigenvalues λ, each scaled by λ^(−1/4).

    This is half-way to whitening: minor directions are learned sooner, and none is blown up. The
    scale keeps Σ λ s² unchanged, so that rows keep about their length. All of it is post-processing
    of `moments`, `[p, p]` symmetric.
    """
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    if values[0] <= 0:
        return np.ascontiguousarray(vectors)
    values = np.maximum(values, values[0] * 1e-4)
    scale = values**-0.25 * math.sqrt(values.sum() / np.sqrt(values).sum())
    return np.ascontiguousarray(vectors * scale)


def load_public_components(job: Job, *, features: int) -> NDArray[np.float64] | None:
    """Return `[p, k]` the tensor `components` of `model.pca-file`; None if the job has none.

    Args:
        features: p, of the rows before they are projected.

    Raises JobError.
    """
    path, count = job.model.components_file, job.model.component_count
    if count is None or job.model.components_share:
        return None
    if not path:
        raise JobError(
            "Expected model.pca-file with model.pca = 'public' and real parties, got none: the "
            "server has no records for computing components."
        )
    try:
        components = load_tensors(path)["components"]
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


class ComponentsRelease(NamedTuple):
    """Release 0, of the second moments."""

    moments: SecondMoments
    plan: ReleasePlan


def plan_components_release(
    job: Job, *, features: int, federation: Federation, run_id: str = "plan"
) -> ComponentsRelease:
    """Return the release ahead of the first round of a job with one. Raises RingTooSmall.

    Args:
        features: p, of the rows before they are projected.
    """
    mu = compute_components_mu(job)
    relation = Neighbouring(job.privacy.neighbouring)
    private = relation is Neighbouring.ADD_OR_REMOVE_ONE
    moments = SecondMoments(
        model=UpperTriangle(features=features),
        neighbouring=relation,
        bound=_MAX_RECORDS if private else float(federation.max_records),
    )

    def noise(sensitivity: float) -> Gaussian:
        # Rounded so that Δ/σ is at most the μ for which the steps' noise was calibrated.
        sigma = round_quotient_up(sensitivity, mu * (1 - 1e-12))
        return Gaussian(sensitivity=sensitivity, sigma=sigma, dimension=moments.dimension)

    plan = plan_claim(
        job,
        moments.claim(),
        algorithm=moments.kind,
        federation=federation,
        run_id=run_id,
        round_number=0,
        noise=NoiseScaling(calibration="exact", build=noise),
    )
    return ComponentsRelease(moments=moments, plan=plan)
