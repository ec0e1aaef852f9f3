"""Define an audit's trials for each kind of model and algorithm, a table row each.

`shrink_job` builds the job of a federation that is cheap to repeat, with its differences from the
requested job. A model is recognised by what it learns (`model.learns` of a job), an algorithm by
its kind. One without a row uses the simplest row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.party_sampling import EVERYONE
from parley.client.own_code.own_code_names import is_own_code
from parley.privacy.accounting.threat_model import Unit
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.toml_writing import format_toml_value
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError, replace_auto
from parley.simulations.audit.canary_pool import (
    Block,
    build_code_pool,
    build_column_pool,
    build_row_pool,
    build_table_schema,
)

ANGLE = 1e-3
"""Angle between a linear model's canaries and the direction that only they use."""

HIDDEN = 3
"""Units of a hidden layer: one for the state, one for the canary, one more."""

_MAX_PARTY_RECORDS = 1000
"""Maximum number of records that are copied for every trial."""

_MAX_FEATURES = 256
"""Maximum number of features of a record."""


SYNTHETIC_DATA = {
    "source": "synthetic",
    "schema": "",
    "partition": "iid",
    "test-source": "",
    "test-schema": "",
}
"""Keys of `[data]` with which a job uses drawn records."""


class AuditError(ValueError):
    """The request cannot be audited; the message names what can."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Trials for what a model learns.

    Attributes:
        records, features: of a party, unless the audit requests others.
        angle: between a canary and the direction that is its own.
        diagonal: whether that direction is the diagonal, the worst for a coordinatewise
            distribution.
        classes: whether labels are class numbers, 0 and 1.
        cheap: whether a trial is a row of an array, so that many are computed at a time.
        model: a job's `[model]`, p → the keys that ε does not depend on, for the least work.
        algorithm: likewise, keys of `[algorithm]` that a job has.
        width: columns of a row, for each of its features.
        schema: p → text of the records' public schema; empty: they have none.
    """

    records: int = 2
    features: int = 2
    angle: float = 0.0
    diagonal: bool = False
    classes: bool = True
    cheap: bool = True
    model: Callable[[Any, int], dict[str, object]] = lambda model, features: {}
    algorithm: Mapping[str, object] = field(default_factory=dict)
    width: int = 1
    schema: Callable[[int], str] = lambda _: ""

    def to_labels(self, model: Any, signs: NDArray[np.float64]) -> NDArray[Any]:
        """Return ±1 as a model needs them: signs, targets, or classes 1 and 0."""
        return (signs > 0).astype(np.int64) if self.classes else model.loss.from_signs(signs)


def _build_linear_settings(model: Any, features: int) -> dict[str, object]:
    return {"intercept": False, "features": "none", "feature-settings": {}}


def _build_network_settings(model: Any, features: int) -> dict[str, object]:
    """Return a network as deep as the job's, up to two hidden layers; on components if the job's
    is.
    """
    kind = {"kind": "pca-mlp", "components": features} if model.component_count else {"kind": "mlp"}
    return {**kind, "hidden": [HIDDEN] * min(len(getattr(model, "hidden", ())), 2)}


LEARNERS: dict[str, Learner] = {
    "linear": Learner(
        angle=ANGLE,
        diagonal=True,
        classes=False,
        model=_build_linear_settings,
        # Keeps θ where the canary's gradient is full: the step is post-processing of the release.
        algorithm={"learning-rate": 1e-9},
    ),
    "network": Learner(
        records=4, features=4, angle=0.05, cheap=False, model=_build_network_settings
    ),
    "nothing": Learner(algorithm={"pairs": "all"}, width=2, schema=build_table_schema),
}

MOMENTS = Learner(features=3, angle=math.pi / 4, model=_build_network_settings)
"""Trials for the release ahead of the rounds: the canaries' outer products are orthogonal."""


@dataclass(frozen=True, kw_only=True)
class ResponseTraits:
    """Traits of an algorithm's party responses.

    Attributes:
        trains: from the state that is sent; the server may send it again.
        optimum: of each party's own objective, for any state.
        noisy: with a party's own noise, inside its training.
        features: number of a record's features at which attacks are strongest; 0: the model's.
        remove_noise: the algorithm without noise, with every record in every batch and every party
            in every sum.
        build_pool: records to try as canaries, if a value per record is added up; None: canaries
            are built for the algorithm's gradients.
    """

    trains: bool = False
    optimum: bool = False
    noisy: bool = False
    slow: bool = False
    features: int = 0
    remove_noise: Callable[[Any], Any] = lambda algorithm: algorithm
    build_pool: Callable[[Any], Block] | None = None


def _remove_averaging_noise(algorithm: Any) -> Any:
    quiet = {"noise_multiplier": 0.0, "clipped_share": 0.0, "sampling_rate": 1.0}
    training = replace(algorithm.training, **quiet)
    return replace(algorithm, training=training, clipped_reach=0.0, attendance=EVERYONE)


def _remove_sampling(algorithm: Any) -> Any:
    training = replace(algorithm.training, sampling_rate=1.0)
    return replace(algorithm, training=training, attendance=EVERYONE)


def _remove_objective_noise(algorithm: Any) -> Any:
    """Return the algorithm with almost no noise in the objective, so near its own optimum."""
    return replace(algorithm, objective_epsilon=1e6)


RESPONSE_TRAITS: dict[str, ResponseTraits] = {
    "fedavg": ResponseTraits(trains=True, noisy=True, remove_noise=_remove_averaging_noise),
    "distributed-dp-sgd": ResponseTraits(trains=True, slow=True, remove_noise=_remove_sampling),
    "output-perturbation": ResponseTraits(optimum=True),
    "pathak": ResponseTraits(optimum=True),
    "objective-perturbation": ResponseTraits(
        optimum=True, noisy=True, slow=True, features=1, remove_noise=_remove_objective_noise
    ),
    "second-moments": ResponseTraits(),
    "marginals": ResponseTraits(build_pool=build_code_pool),
    "random-features": ResponseTraits(build_pool=build_code_pool),
    "query": ResponseTraits(build_pool=build_column_pool),
    "held-out-counts": ResponseTraits(build_pool=build_row_pool),
}

_OWN = ResponseTraits(build_pool=build_row_pool)


def get_response_traits(algorithm: str) -> ResponseTraits:
    """Return an algorithm's row; without one, a response to the state that is sent."""
    return _OWN if is_own_code(algorithm) else RESPONSE_TRAITS.get(algorithm, ResponseTraits())


@dataclass(frozen=True, kw_only=True)
class FederationShape:
    """The federation of one trial: m parties, n records of the smallest, p features."""

    parties: int
    records: int
    features: int


def compute_min_records(job: Job) -> int:
    """Return the number of a party's records that the attacks need."""
    if get_response_traits(job.algorithm.kind).optimum:
        # A canary moves the optimum by 1/(nλ); within that, its slope has to stay full.
        return min(max(2, math.ceil(2 / job.model.regularisation)), _MAX_PARTY_RECORDS)
    # With their own rate, batches have few records in any case.
    return LEARNERS[job.model.learns].records


def compute_min_parties(job: Job) -> int:
    """Return the number of parties of which one is in a sum on average."""
    return math.ceil(1 / _get_participation_rate(job))


def _get_participation_rate(job: Job) -> float:
    """Return p with which a party is in a sum of a trial; 1 if it is in each of them."""
    asked, unit = job.parties.per_round, job.privacy.unit
    hidden = unit == "party" and job.parties.hides_presence
    # With noise inside, an absent party's contribution is all zeros: its coin is visible.
    seen = unit == "record" and get_response_traits(job.algorithm.kind).noisy
    return asked if isinstance(asked, float) and (hidden or seen) else 1.0


def shrink_job(
    job: Job, unit: Unit, shape: FederationShape, seed: int | None
) -> tuple[tuple[str, ...], Job]:
    """Return the job of such a small federation, and its changes."""
    # Every party is in every sum, if attacks do not use the parties' coins.
    in_all = _get_participation_rate(job) >= 1
    attending = {"per-round": "all", "presence": "auto"} if in_all else {}
    changes: dict[str, dict[str, Any]] = {
        "parties": {"count": shape.parties, "min-records": shape.records, **attending},
        "secure-aggregation": {"min-survivors": "auto", "corrupt": "auto"},
        "data": SYNTHETIC_DATA,
        "run": {"faults": "", "seed": "none" if seed is None else seed},
    }
    learner = LEARNERS[job.model.learns]
    changes["model"] = learner.model(job.model, shape.features)
    asked = job.to_values()["algorithm"]
    changes["algorithm"] = {key: own for key, own in learner.algorithm.items() if key in asked}
    if not learner.cheap:
        changes["run"]["device"] = "cpu"
        rate = _compute_network_rate(job, unit)
        changes["dp-sgd"] = {"momentum": 0.0, "optimiser": "sgd", "learning-rate": rate}
        changes["dp-sgd"] |= _keep_sampling(job)
    plain = job.to_values()
    words = []
    for section, keys in changes.items():
        for key, value in keys.items():
            if plain[section].get(key) != value:
                words.append(f"{section}.{key} = {format_toml_value(value)}")
            plain[section][key] = value
    with translate_errors(ValueError, JobError):
        return tuple(words), Job.model_validate(plain)


def compute_min_features(job: Job) -> int:
    """Return p at which a network without hidden layers has gradients as long as the clip; 0: any.

    Its inputs are √p long, and w·(softmax − e_y) is up to w√2, w the smallest weight of a class.
    """
    learner = LEARNERS[job.model.learns]
    if learner is not LEARNERS["network"] or getattr(job.model, "hidden", None):
        return 0
    least = min(job.model.label_weights, default=1.0)
    wanted = math.ceil(0.6 * (replace_auto(job.dp_sgd.clip_norm, 1.0) / least) ** 2)
    return min(max(wanted, learner.features), _MAX_FEATURES)


def _keep_sampling(job: Job) -> dict[str, Any]:
    """Return the job's sampling rate and steps, for any number of records."""
    if job.privacy.unit == "party":
        # No effect on ε, and a party that takes all its records computes the same every time.
        return {"sampling-rate": 1.0, "batch-size": "auto", "local-steps": 1}
    settings, least = job.dp_sgd, job.parties.min_records
    rate: Any = settings.sampling_rate
    if settings.batch_size != "auto":
        if least == "auto":
            raise AuditError(
                "Expected parties.min-records with dp-sgd.batch-size, got 'auto': the sampling "
                "rate is batch-size / min-records."
            )
        rate = settings.batch_size / least
    steps: Any = settings.local_steps
    if steps == "auto" and "auto" not in {rate, settings.local_epochs}:
        steps = max(1, round(settings.local_epochs / rate))
    return {"sampling-rate": rate, "batch-size": "auto", "local-steps": steps}


def _compute_network_rate(job: Job, unit: Unit) -> float:
    if unit is Unit.PARTY:
        return 1e3  # An update far beyond S, because the clip is what is tested.
    # If an update is clipped too, stay well within S: that clip would only hide the record.
    clip = job.dp_sgd.party_clip_norm if job.privacy.unit == "both" else 1.0
    return 1e-2 * replace_auto(clip, 1.0)
