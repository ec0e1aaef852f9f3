"""Audit a run with its own canary records: guess their coins from what the run released.

K coins decide over K canaries: which of two opposite records each one is (replace-one), or whether
it is present (add-or-remove-one). Canaries have norm 1 and are placed in the parties in turn. As
far as there are columns, they use the directions that the records use least, where the model
answers nothing else. The job's ε covers canaries like any record; the public minimum number of
records counts none of them. A score is the answer of the run's last iterate to a canary; guesses
are the canaries with the largest scores, of both signs. The bounds are those of one run
(`parley.privacy.audit.one_run`), for two numbers of guesses, each at its share of α. It is a weak
check, against large faults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import PartyBlock
from parley.privacy.audit.one_run import find_surest_guesses
from parley.privacy.audit.two_world_bounds import compute_gaussian_lower
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_summary import SelfAudit
from parley.simulations.audit.audit_job_shrinking import LEARNERS
from parley.simulations.data.simulated_experiment import Experiment

CONFIDENCE = 0.95
_STREAM = 0xCA9A
_LARGEST_BASIS = 2000
_PARTS = ((4, 0.8), (1, 0.2))
"""Part of the canaries that is guessed, and its share of α: a quarter, which bounds most, or all.
"""


@dataclass(frozen=True, kw_only=True, repr=False)
class InsertedCanaries:
    """What the auditor knows, and the coins.

    Attributes:
        rows: `[K, p]` of norm 1.
        coins: `[K]` heads: the first of the two records, or present.
    """

    rows: NDArray[np.float64]
    coins: NDArray[np.bool_]
    kind: Literal["in-out", "one-of-two"]

    def compute_bounds(self, model: Any, theta: NDArray[np.float64], *, delta: float) -> SelfAudit:
        """Return the bound from correct guesses of the coins, using only a run's last iterate."""
        scores = _compute_margins(model, theta, self.rows)
        centred = scores - np.median(scores)
        right = ((centred if self.kind == "in-out" else scores) > 0) == self.coins
        terms: dict[str, float] = {"alpha": 1 - CONFIDENCE, "delta": delta}
        found = find_surest_guesses(centred, right, _PARTS, **terms)
        most = find_surest_guesses(centred, np.ones_like(right), _PARTS, **terms)
        epsilon, made, hits = found["one-run"]
        return SelfAudit(
            canaries=len(scores),
            coins=self.kind,
            guesses=made,
            right=hits,
            confidence=CONFIDENCE,
            epsilon_lower=epsilon,
            epsilon_lower_on_gaussian_curve=compute_gaussian_lower(found["one-run-fdp"][0], delta),
            ceiling=most["one-run"][0],
            method="one-run",
        )


def insert_canaries(
    job: Job, experiment: Experiment, count: int, *, seed: int
) -> tuple[Experiment, InsertedCanaries]:
    """Insert canaries among the experiment's records.

    Args:
        seed: of directions and coins; another use of the same number draws something else.

    Raises:
        JobError: a job that would not cover its canaries, or more canaries than records.
    """
    _check_canaries(job, experiment, count)
    block = experiment.block
    rng = np.random.default_rng([seed, _STREAM])
    rows = _choose_directions(block.dense_features, count, rng)
    coins = rng.random(count) < 0.5
    in_out = job.privacy.neighbouring == "add-or-remove-one"
    kept = np.flatnonzero(coins) if in_out else np.arange(count)
    labels = LEARNERS[job.model.learns].to_labels(experiment.model, np.where(coins, 1.0, -1.0))
    labels = labels.astype(block.labels.dtype)
    parts = []
    for party in range(block.parties):
        own = kept[kept % block.parties == party]
        held = slice(block.offsets[party], block.offsets[party + 1])
        features = np.concatenate([block.features[held], rows[own]])
        parts.append((features, np.concatenate([block.labels[held], labels[own]])))
    sizes = [len(own) for _, own in parts]
    with_canaries = PartyBlock(
        features=np.concatenate([features for features, _ in parts]),
        labels=np.concatenate([labels for _, labels in parts]),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
    )
    canaries = InsertedCanaries(rows=rows, coins=coins, kind="in-out" if in_out else "one-of-two")
    # The public numbers for the noise count no canary; only the bound on rounding does.
    federation = replace(experiment.federation, max_records=max(sizes))
    return replace(experiment, block=with_canaries, federation=federation), canaries


def _choose_directions(
    features: NDArray[np.floating], count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return `[K, p]` of norm 1: right singular vectors that records use least, or random."""
    columns = features.shape[1]
    if count <= columns <= _LARGEST_BASIS:
        least: NDArray[np.float64] = np.linalg.eigh(features.T @ features)[1][:, :count]
        return np.ascontiguousarray(least.T)
    rows = rng.standard_normal((count, columns))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _check_canaries(job: Job, experiment: Experiment, count: int) -> None:
    most = experiment.federation.min_records * experiment.federation.parties
    if not 2 <= count <= most:
        raise JobError(
            f"Expected 2 to {most} canaries, no more in a party than its public "
            f"{experiment.federation.min_records} records, got {count}."
        )
    for key, asked, fits in (
        ("run.engine", job.run.engine, "fast"),
        ("privacy.unit", job.privacy.unit, "record"),
        ("parties.weights", job.parties.weights, "uniform"),
    ):
        if asked != fits:
            raise JobError(f"Expected {key} = {fits!r} with canaries, got {asked!r}.")
    if job.model.learns not in LEARNERS or job.model.component_count:
        raise JobError(
            "Expected a linear model, or a network on the records themselves, with canaries, got "
            f"{job.model.kind!r}."
        )


def _compute_margins(model: Any, theta: NDArray[np.float64], rows: NDArray[np.float64]) -> Any:
    """Return `[K]` the model's margin for the first record's label, less that of a row of zeros."""
    if hasattr(model, "compute_scores"):
        both = np.concatenate([rows, np.zeros((1, rows.shape[1]))])
        scores = model.compute_margins(theta, both)
        margins = scores[:, 1] - scores[:, 0]
        return np.nan_to_num(margins[:-1] - margins[-1])
    return rows @ model.loss.get_direction(theta.reshape(-1, rows.shape[1]))
