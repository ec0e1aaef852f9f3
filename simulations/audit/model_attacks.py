"""Attack the final model that a run releases, by whole trainings on the records of a job.

| attack | canary | score of a model |
|---|---|---|
| clipbkd | along the direction that records use least, with the rarest label | logit |
| label-flip | a record with another label | logit |
| membership | every record: it is in a trial by a coin | likelihood of its logit if it is |

clipbkd and label-flip train trials with the canary and without (Jagielski, Ullman & Oprea 2020,
arXiv:2006.07709). A logit is that of the canary's label at the canary, less that of a row of zeros.
In membership (after Carlini et al. 2022, arXiv:2112.03570) a coin decides which of two records is
in a trial or, under add-or-remove-one, whether a record is. The same number of other trials gives
every record two Gaussians of its logit; the coins of the first are guessed. Trials are independent,
so that all their coins together are those of one run of a release that costs a record no more
(`parley.privacy.audit.one_run`). A reader of the final model is the weakest adversary: bounds are
far below the claim, and show what such an attacker achieves.

The records are synthetic, or the job's own. In the latter case the attack's results are computed
from them, and no ε covers that. The rest of the job is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring
from parley.simulations.audit.audit_job_shrinking import AuditError
from parley.simulations.audit.audit_target import AuditTarget
from parley.simulations.audit.trial_observations import ObservedWorlds, Pair
from parley.simulations.audit.world_batch import WorldRandomness, train_models

Values = NDArray[np.float64]


def _build_clipbkd_canary(records: PartyBlock) -> tuple[Values, Any]:
    rows = np.asarray(records.features, dtype=np.float64)
    least = np.linalg.eigh(rows.T @ rows)[1][:, 0]
    values, counts = np.unique(records.labels, return_counts=True)
    return least * np.linalg.norm(rows, axis=1).mean(), values[counts.argmin()]


def _build_flipped_canary(records: PartyBlock) -> tuple[Values, Any]:
    values = np.unique(records.labels)
    return records.features[0], values[values != records.labels[0]][0]


def _run_canary_attack(
    make: Callable[[PartyBlock], tuple[Values, Any]],
    target: AuditTarget,
    count: int,
    source: WorldRandomness,
) -> Pair:
    """Train with the canary in place of the first record, and with that record, or none."""
    records = _require_records(target)
    row, label = make(records)
    features, labels = records.dense_features.copy(), records.labels.copy()
    features[0], labels[0] = row, label
    inside = PartyBlock(features=features, labels=labels, offsets=records.offsets)
    outside = records
    if target.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
        offsets = np.maximum(records.offsets - 1, 0)
        outside = PartyBlock(features=features[1:], labels=labels[1:], offsets=offsets)
    both, its = np.stack([row, np.zeros_like(row)]), np.array([label, label])

    def seen(world: PartyBlock, name: str) -> ObservedWorlds:
        thetas = train_models(target, lambda _: world, count, source.with_names(name))
        logits = _compute_logits(target.algorithm.model, thetas, both, its)
        return ObservedWorlds(scores=np.asarray(logits[:, 0] - logits[:, 1]))

    return seen(inside, "in"), seen(outside, "out")


def _run_membership_attack(target: AuditTarget, count: int, source: WorldRandomness) -> Pair:
    """Score every coin of `count` trials; return the scores of heads and of tails."""
    block = _require_records(target)
    one_of_two = target.guarantee.neighbouring is not Neighbouring.ADD_OR_REMOVE_ONE
    rng = np.random.default_rng(source.with_names("coins").get_chunk(0).seed)
    # Pair every party's records in the order of the job's split, which was random.
    first = np.concatenate(
        [at + 2 * np.arange(n // 2) for at, n in zip(block.offsets, block.sizes, strict=False)]
    )
    records = np.stack([first, first + 1], axis=1)
    coins = rng.random((2 * count, len(first), 2)) < 0.5
    if one_of_two:
        coins[:, :, 1] = ~coins[:, :, 0]
    bounds = np.concatenate([[0], np.cumsum(block.sizes // 2)])

    def world(number: int) -> PartyBlock:
        there = coins[number]
        counted = np.concatenate([[0], np.cumsum(there.sum(1))])
        rows = records[there]
        offsets = counted[bounds].astype(np.int64)
        return PartyBlock(features=block.features[rows], labels=block.labels[rows], offsets=offsets)

    thetas = train_models(target, world, 2 * count, source.with_names("worlds"))
    model, flat = target.algorithm.model, records.ravel()
    logits = _compute_logits(model, thetas, block.features[flat], block.labels[flat])
    scores = _compute_likelihoods(logits.reshape(2 * count, *records.shape), coins, count)
    there = coins[count:]
    if one_of_two:
        scores, there = scores[:, :, 0] - scores[:, :, 1], there[:, :, 0]
    return ObservedWorlds(scores=scores[there]), ObservedWorlds(scores=scores[~there])


def _compute_likelihoods(
    scores: NDArray[np.float64], coins: NDArray[np.bool_], shadows: int
) -> NDArray[np.float64]:
    """Return log-ratios of the guessed trials, by Gaussians of the others with one variance."""
    own, there = scores[:shadows], coins[:shadows]
    counts = np.maximum(there.sum(0), 1), np.maximum((~there).sum(0), 1)
    means = (own * there).sum(0) / counts[0], (own * ~there).sum(0) / counts[1]
    spread = np.where(there, own - means[0], own - means[1])
    variance = max(float(np.square(spread).mean()), 1e-300)
    near, far = (np.square(scores[shadows:] - mean) for mean in means)
    return np.asarray((far - near) / (2 * variance))


def _require_records(target: AuditTarget) -> PartyBlock:
    if target.records is None:
        raise AuditError("Expected records for an attack on the released model, got none.")
    if target.algorithm.model.metric_name != "accuracy":
        raise AuditError("Expected a model of classes, got one of targets: it has no logits.")
    return target.records


TRAININGS: dict[str, Callable[[AuditTarget, int, WorldRandomness], Pair]] = {
    "clipbkd": partial(_run_canary_attack, _build_clipbkd_canary),
    "label-flip": partial(_run_canary_attack, _build_flipped_canary),
    "membership": _run_membership_attack,
}
"""Name → attack: target, number of trials of each kind and randomness → observations."""


def _compute_logits(model: Any, thetas: Values, rows: NDArray[np.floating], labels: Any) -> Values:
    """Return `[W, N]` the logit of every record's own class, under every model."""

    margins = (np.asarray(model.compute_margins(theta, rows), dtype=np.float64) for theta in thetas)
    return np.stack([_compute_logit(each, labels) for each in margins])


def _compute_logit(scores: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    if scores.ndim == 1:
        return np.asarray(np.nan_to_num(scores * labels))
    at = np.arange(len(labels)), labels.astype(np.int64)
    others = scores.copy()
    others[at] = -np.inf
    return np.asarray(np.nan_to_num(scores[at] - logsumexp(others, axis=1)))
