"""The job of a federation that is cheap to repeat, and how it differs from the one asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.privacy.accounting.guarantee import Unit
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.simulations.audit.shapes import LEARNERS, answer_of

_LARGEST_PARTY = 1000
"""Records: more than this are not laid out for every world."""

_MOST_FEATURES = 256
"""Likewise of a record."""


class AuditError(ValueError):
    """What cannot be audited, and what can."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The federation of one world.

    Attributes:
        parties: m.
        records: n of the smallest party.
        features: p.
    """

    parties: int
    records: int
    features: int


def least_records(job: Job) -> int:
    """Records of a party of a world, as many as the attacks need."""
    if answer_of(job.algorithm.kind).optimum:
        # A canary moves the optimum by 1/(nλ), within which its slope has to stay full.
        return int(min(max(2, np.ceil(2 / job.model.regularisation)), _LARGEST_PARTY))
    # With their own rate, batches are of few records in any case.
    return LEARNERS[job.model.learns].records


def least_parties(job: Job) -> int:
    """Parties of a world, of whom one is in a sum on average."""
    return math.ceil(1 / _own_coin(job))


def _own_coin(job: Job) -> float:
    """p with which a party is in a sum of a world; 1 where it is in each of them."""
    asked, unit = job.parties.per_round, job.privacy.unit
    hidden = unit == "party" and job.parties.hidden
    # With noise inside, an absent party's contribution is all zeros: its coin is seen.
    seen = unit == "record" and answer_of(job.algorithm.kind).noisy
    return asked if isinstance(asked, float) and (hidden or seen) else 1.0


def smaller(job: Job, unit: Unit, shape: Shape, seed: int | None) -> tuple[tuple[str, ...], Job]:
    """The job of so small a federation, and what was changed."""
    changes: dict[str, dict[str, Any]] = {
        "parties": {"count": shape.parties, "min-records": shape.records, **_always_in(job)},
        "secure-aggregation": {"min-survivors": "auto", "corrupt": "auto"},
        "data": {"source": "synthetic", "schema": "", "partition": "iid", "test-source": ""},
        "run": {"faults": "", "seed": "none" if seed is None else seed},
    }
    learner = LEARNERS[job.model.learns]
    changes["model"] = learner.model(job.model, shape.features)
    asked = job.values()["algorithm"]
    changes["algorithm"] = {key: own for key, own in learner.algorithm.items() if key in asked}
    if not learner.cheap:
        changes["run"]["device"] = "cpu"
        changes["dp-sgd"] = {
            "momentum": 0.0,
            "optimiser": "sgd",
            "learning-rate": _network_rate(job, unit),
            **_same_sampling(job),
        }
    plain = job.values()
    words = []
    for section, keys in changes.items():
        for key, value in keys.items():
            if plain[section][key] != value:
                words.append(f"{section}.{key} = {value!r}")
            plain[section][key] = value
    try:
        return tuple(words), Job.model_validate(plain)
    except ValueError as error:
        raise JobError(str(error)) from error


def enough_features(job: Job) -> int:
    """p at which a network without hidden layers has gradients as long as the clip; 0: any.

    Its inputs are √p long, and w·(softmax − e_y) is up to w√2, w the least weight of a class.
    """
    learner = LEARNERS[job.model.learns]
    if learner is not LEARNERS["network"] or getattr(job.model, "hidden", None):
        return 0
    least = min(job.model.weights_of_classes, default=1.0)
    wanted = math.ceil(0.6 * (job.dp_sgd.clip_norm / least) ** 2)
    return min(max(wanted, learner.features), _MOST_FEATURES)


def _always_in(job: Job) -> dict[str, Any]:
    """Every party in every sum, where no attack has a use for its coins."""
    return {} if _own_coin(job) < 1 else {"per-round": "all", "presence": "auto"}


def _same_sampling(job: Job) -> dict[str, Any]:
    """The job's rate and steps, whatever the number of records."""
    if job.privacy.unit == "party":
        # Of no effect on ε, and a party that takes all its records computes the same every time.
        return {"sampling-rate": 1.0, "batch-size": "auto", "local-steps": 1}
    settings, least = job.dp_sgd, job.parties.min_records
    rate = settings.sampling_rate
    if settings.batch_size != "auto":
        if least == "auto":
            raise AuditError(
                "Expected parties.min-records with dp-sgd.batch-size, got 'auto': the sampling "
                "rate is the one over the other."
            )
        rate = settings.batch_size / least
    steps = settings.local_steps
    if steps == "auto":
        steps = max(1, round(settings.local_epochs / rate))
    return {"sampling-rate": rate, "batch-size": "auto", "local-steps": steps}


def _network_rate(job: Job, unit: Unit) -> float:
    if unit is Unit.PARTY:
        return 1e3  # An update far beyond S: the clip is what is tested.
    # Where an update is clipped too, well within S: that clip would only hide the record.
    return 1e-2 * (job.dp_sgd.party_clip_norm if job.privacy.unit == "both" else 1.0)
