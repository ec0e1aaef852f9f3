"""What a budget buys, before any data is touched: noise, ε by round, ring and grid, alternatives.

Figures are for the *average* over the parties, in the model's own units and without the grid,
unless a key says otherwise; the grid's share is in `grid.inflation` and is charged by the run.
"""

from __future__ import annotations

from typing import Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.privacy.accounting.composition import Composition
from parley.privacy.calibration.calibration import CalibrationError, stated_delta
from parley.privacy.mechanisms.table import MECHANISMS
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.job import Job
from parley.server.planning.budgets import check_delta
from parley.server.planning.release import (
    Federation,
    algorithm_for,
    averaged,
    epsilon_by_round,
    mechanism_for,
    model_for,
    plan_release,
)
from parley.simulations.data.outlook import public_shape

__all__ = ["plan"]

_CALIBRATIONS = ("exact", "cks20", "zcdp", "as-printed")


def plan(job: Job) -> dict[str, Any]:
    """The outlook of a job.

    Returns:
        A dictionary of plain values: `sensitivity` (L2, of the average), `calibrations` and
        `noise_laws` side by side (`{"refused": why}` where one cannot give the budget),
        `chosen`, `grid`, `epsilon_by_round`, `alternatives` (other party counts and sizes).

    Raises:
        JobError: the parties' sizes or the columns are not known without the data.
        CalibrationError, RingTooSmall: the job's own choice cannot give the budget.
    """
    if job.learns == "network":
        from parley.planning_federated import plan_network  # noqa: PLC0415 - start-up: torch takes a second

        return plan_network(job)

    shape = public_shape(job)
    model = model_for(job, features=shape.features, classes=shape.classes)
    algorithm = algorithm_for(job, model)
    federation = Federation(
        parties=job.parties.count,
        min_records=shape.min_records,
        total_records=shape.min_records * job.parties.count,
        max_records=shape.min_records,
    )
    release = plan_release(job, algorithm=algorithm, federation=federation)
    check_delta(job, release)
    dimension = algorithm.dimension
    sensitivity = release.primary.sensitivity / federation.parties

    def offer(**choice: str) -> dict[str, Any]:
        try:
            mechanism = mechanism_for(job, sensitivity=sensitivity, dimension=dimension, **choice)
        except CalibrationError as error:
            return {"refused": str(error)}
        table = {"scale": mechanism.scale, "expected_norm": mechanism.expected_norm()}
        if mechanism.law == "gaussian":
            table["sigma"] = mechanism.scale
        run = _charged(mechanism, job)
        return {**table, **run}

    chosen = averaged(job, release)
    by_round = epsilon_by_round(release, rounds=job.rounds)
    last = by_round[-1]
    return {
        "algorithm": job.algorithm.kind,
        "model": job.model.kind,
        "dimension": dimension,
        "parties": federation.parties,
        "min_records": federation.min_records,
        "min_records_from": shape.origin,
        "rounds": job.rounds,
        "epsilon": job.privacy.epsilon,
        "delta": release.primary.delta,
        "unit": str(release.primary.unit),
        "neighbouring": str(release.primary.neighbouring),
        "lipschitz": release.lipschitz,
        "lambda": job.model.lambda_,
        "sensitivity": sensitivity,
        "chosen": {
            "law": chosen.law,
            "calibration": job.privacy.calibration,
            "scale": chosen.scale,
            "scale_of_sum": chosen.scale * federation.parties,
            "expected_norm": chosen.expected_norm(),
            "epsilon_charged": last["epsilon_charged"],
            "conversion": last["conversion"],
            "description": chosen.describe(),
        },
        "calibrations": {
            name: offer(law="gaussian", calibration=name)
            for name in _CALIBRATIONS
            if job.privacy.delta > 0
        },
        "noise_laws": {
            law: offer(law=law, calibration=_calibration(law, job)) for law in MECHANISMS
        },
        "grid": {
            "ring_bits": release.encoding.ring_bits,
            "scale_bits": release.encoding.scale_bits,
            "inflation": release.inflation,
            "largest_sum": federation.parties * release.encoding.largest,
            "noise_tail": release.primary.mechanism.noise_tail(2.0**-50),
        },
        "epsilon_by_round": by_round,
        "alternatives": _alternatives(job, algorithm, federation, dimension),
    }


def _charged(mechanism: Any, job: Job) -> dict[str, Any]:
    """What a mechanism's `rounds` releases are charged at the job's δ."""

    conversion, epsilon = (
        Composition.empty()
        .add(mechanism.event(), count=job.rounds)
        .epsilon(stated_delta(mechanism.law, job.privacy.delta))
    )
    return {"epsilon_charged": epsilon, "conversion": conversion}


def _calibration(law: str, job: Job) -> str:
    if law == "discrete-gaussian" and job.privacy.calibration in {"exact", "as-printed"}:
        return "cks20"
    return job.privacy.calibration


def _alternatives(
    job: Job,
    algorithm: FederatedAlgorithm,
    federation: Federation,
    dimension: int,
) -> list[dict[str, Any]]:
    """The chosen law's noise for other numbers of parties and records."""
    rows = []
    for parties in _around(federation.parties):
        for records in _around(federation.min_records):
            facts = Federation(
                parties=parties,
                min_records=records,
                total_records=parties * records,
                max_records=records,
            ).facts(job.parties.weights)
            try:
                total = algorithm.claim(facts).sensitivity
                mechanism = mechanism_for(job, sensitivity=total / parties, dimension=dimension)
            except (CalibrationError, RingTooSmall, ValueError):
                continue
            rows.append(
                {
                    "parties": parties,
                    "min_records": records,
                    "sensitivity": total / parties,
                    "scale": mechanism.scale,
                    "expected_norm": mechanism.expected_norm(),
                }
            )
    return rows


def _around(value: int) -> list[int]:
    return sorted({max(1, value // 4), value, value * 4, value * 16})
