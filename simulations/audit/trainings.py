"""Attacks on the model that a run releases at last: whole trainings, on the records of a job.

| attack | canary | score of a model |
|---|---|---|
| clipbkd | along the direction that records use least, with the rarest label | logit |
| label-flip | a record with another label | logit |
| membership | every record: it is in a world by a coin | how likely its logit is with it |

clipbkd and label-flip train worlds with the canary and without (Jagielski, Ullman & Oprea 2020,
arXiv:2006.07709); a logit is that of the canary's label at the canary, less that of a row of zeros.
Membership (after Carlini et al. 2022, arXiv:2112.03570): a coin decides which of two records is in
a world, or under add-or-remove-one whether a record is. Half of the worlds give every record two
Gaussians of its logit; the coins of the others are guessed. Worlds are independent, so that all
their coins together are those of one run of a release that costs a record no more
(`parley.privacy.audit.one_run`). Who reads the model at last is the weakest adversary: bounds are
far below the claim, and say what such an attacker gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from parley.client.data.block import PartyBlock
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.audit.counts import best_event, pilot_size
from parley.privacy.audit.one_run import surest_guesses
from parley.privacy.audit.pair import gaussian_epsilon_lower
from parley.simulations.audit.audited import Audited
from parley.simulations.audit.results import (
    CONFIRMED,
    AuditResult,
    Finding,
    looked_again,
    pair_finding,
)
from parley.simulations.audit.shapes import AuditError
from parley.simulations.audit.worlds import Source, models
from parley.simulations.data.keeping import peak_mib

_PARTS = tuple((part, 1 / 3) for part in (1, 4, 16))
"""Guesses: all coins, a quarter, a sixteenth; each at a third of α."""

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What an attack is made on.

    Attributes:
        block: the parties' records.
        trials: worlds with the canary, and as many without; of membership, half of all.
        alpha: of each of its bounds.
    """

    audited: Audited
    block: PartyBlock
    trials: int
    alpha: float
    source: Source


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one attack came to.

    Attributes:
        findings: by method.
        inside, outside: scores with the canary and without, for the error rates.
        counted, chose: worlds of each kind that were counted, and that chose what is counted.
    """

    findings: dict[str, Finding]
    inside: Values
    outside: Values
    counted: int
    chose: int


def train_and_attack(
    given: Trained, name: str, *, comparisons: int
) -> tuple[list[AuditResult], Found]:
    """One attack by its name; what refutes is looked at again at 10⁻⁶."""
    if given.audited.algorithm.model.metric_name != "accuracy":
        raise AuditError("Expected a model of classes, got one of targets: it has no logits.")
    began, attack, source = time.perf_counter(), TRAININGS[name], given.source.of(name)
    found = attack(replace(given, source=source))
    surely = replace(given, trials=4 * given.trials, alpha=CONFIRMED, source=source.of("confirm"))
    findings = looked_again(found.findings, lambda _: attack(surely).findings)
    seconds = time.perf_counter() - began
    results = [
        AuditResult(
            **vars(finding),
            attack=name,
            method=method,
            trials_in=found.counted,
            trials_out=found.counted,
            trials_threshold=found.chose,
            alpha=given.alpha,
            comparisons=comparisons,
            seconds=seconds,
            trials_per_second=2 * given.trials / max(seconds, 1e-9),
            peak_mib=peak_mib(),
        )
        for method, finding in findings.items()
    ]
    return results, found


def _clipbkd(given: Trained) -> Found:
    rows = np.asarray(given.block.features, dtype=np.float64)
    least = np.linalg.eigh(rows.T @ rows)[1][:, 0]
    values, counts = np.unique(given.block.labels, return_counts=True)
    return _canary(given, least * np.linalg.norm(rows, axis=1).mean(), values[counts.argmin()])


def _label_flip(given: Trained) -> Found:
    values, labels = np.unique(given.block.labels), given.block.labels
    return _canary(given, given.block.features[0], values[values != labels[0]][0])


def _canary(given: Trained, row: NDArray[np.floating], label: Any) -> Found:
    """With the canary in place of the first record; without it: that record, or none."""
    audited, block, trials = given.audited, given.block, given.trials
    features, labels = block.features.copy(), block.labels.copy()
    features[0], labels[0] = row, label
    inside = PartyBlock(features=features, labels=labels, offsets=block.offsets)
    outside = block
    if audited.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
        offsets = np.maximum(block.offsets - 1, 0)
        outside = PartyBlock(features=features[1:], labels=labels[1:], offsets=offsets)
    both = np.stack([row, np.zeros_like(row)])

    def scored(world: PartyBlock, name: str) -> Values:
        thetas = models(audited, lambda _: world, trials, given.source.of(name))
        seen = _logits(audited.algorithm.model, thetas, both, np.array([label, label]))
        return np.asarray(seen[:, 0] - seen[:, 1])

    scores = scored(inside, "in"), scored(outside, "out")
    first = pilot_size(trials)
    rest, limits = trials - first, {"alpha": given.alpha, "delta": audited.delta}
    event = best_event(scores[0][:first], scores[1][:first], trials=rest, **limits)
    finding = pair_finding(
        event.count(scores[0][first:], scores[1][first:]),
        **limits,
        claimed=audited.epsilon,
        threshold=event.threshold,
        note=f"AUC {_auc(*scores):.3f}",
    )
    return Found(
        findings={"pair": finding}, inside=scores[0], outside=scores[1], counted=rest, chose=first
    )


def halved(block: PartyBlock) -> NDArray[np.int64]:
    """Half of every party's number of records: what a world of membership holds of them."""
    return np.asarray(block.sizes // 2, dtype=np.int64)


def _membership(given: Trained) -> Found:
    audited, block, trials, source = given.audited, given.block, given.trials, given.source
    one_of_two = audited.guarantee.neighbouring is not Neighbouring.ADD_OR_REMOVE_ONE
    rng = np.random.default_rng(source.of("coins").chunk(0).seed)
    # Every party's records in pairs, in the order that the job split them in: it drew that.
    first = np.concatenate(
        [at + 2 * np.arange(n // 2) for at, n in zip(block.offsets, block.sizes, strict=False)]
    )
    records = np.stack([first, first + 1], axis=1)
    coins = rng.random((2 * trials, len(first), 2)) < 0.5
    if one_of_two:
        coins[:, :, 1] = ~coins[:, :, 0]
    bounds = np.concatenate([[0], np.cumsum(halved(block))])

    def world(number: int) -> PartyBlock:
        there = coins[number]
        counted = np.concatenate([[0], np.cumsum(there.sum(1))])
        rows = records[there]
        return PartyBlock(
            features=block.features[rows],
            labels=block.labels[rows],
            offsets=counted[bounds].astype(np.int64),
        )

    thetas = models(audited, world, 2 * trials, source.of("worlds"))
    flat = records.ravel()
    seen = _logits(
        audited.algorithm.model, thetas, block.features[flat], block.labels[flat]
    ).reshape(2 * trials, *records.shape)
    ratios, there = _likelihoods(seen, coins, trials), coins[trials:]
    if one_of_two:
        scores, truth = ratios[:, :, 0] - ratios[:, :, 1], there[:, :, 0]
    else:
        scores, truth = ratios.reshape(trials, -1), there.reshape(trials, -1)
    inside, outside = ratios[there], ratios[~there]
    note = (
        f"AUC {_auc(inside, outside):.3f}; true positives at 1 % false ones "
        f"{_at(inside, outside, 0.01):.4f}, at .1 % {_at(inside, outside, 0.001):.4f}"
    )
    return Found(
        findings=_guessed(given, scores.ravel(), truth.ravel(), note),
        inside=inside,
        outside=outside,
        counted=trials,
        chose=trials,
    )


def _likelihoods(
    seen: NDArray[np.float64], coins: NDArray[np.bool_], shadows: int
) -> NDArray[np.float64]:
    """Log-ratios of the worlds that are guessed, by Gaussians of the others; one variance."""
    own, there = seen[:shadows], coins[:shadows]
    counts = np.maximum(there.sum(0), 1), np.maximum((~there).sum(0), 1)
    means = (own * there).sum(0) / counts[0], (own * ~there).sum(0) / counts[1]
    spread = np.where(there, own - means[0], own - means[1])
    variance = max(float(np.square(spread).mean()), 1e-300)
    return np.asarray(
        (np.square(seen[shadows:] - means[1]) - np.square(seen[shadows:] - means[0]))
        / (2 * variance)
    )


def _guessed(
    given: Trained, scores: Values, truth: NDArray[np.bool_], note: str
) -> dict[str, Finding]:
    audited, right = given.audited, (scores > 0) == truth
    best = surest_guesses(scores, right, _PARTS, alpha=given.alpha, delta=audited.delta)
    if audited.mu is None:
        del best["one-run-fdp"]
    findings = {}
    for method, (bound, guesses, hits) in best.items():
        curve = method == "one-run-fdp"
        claimed = audited.mu if curve and audited.mu is not None else audited.epsilon
        findings[method] = Finding(
            assumption="Gaussian curve" if curve else "none",
            hits_in=hits,
            hits_out=guesses - hits,
            epsilon_lower=gaussian_epsilon_lower(bound, audited.delta) if curve else bound,
            mu_lower=bound if curve else None,
            fraction_of_claim=bound / claimed if claimed else None,
            refuted=bound > claimed,
            note=f"{hits} of {guesses} guesses right; {note}",
        )
    return findings


TRAININGS: dict[str, Callable[[Trained], Found]] = {
    "clipbkd": _clipbkd,
    "label-flip": _label_flip,
    "membership": _membership,
}


def _logits(model: Any, thetas: Values, rows: NDArray[np.floating], labels: Any) -> Values:
    """`[W, N]` of every record's own class, under every model."""

    def scores(theta: Values) -> Values:
        if hasattr(model, "scores"):
            return np.asarray(model.scores(theta, rows).detach().cpu(), dtype=np.float64)
        return np.asarray(model.margins(theta, rows), dtype=np.float64)

    return np.stack([_logit(scores(theta), labels) for theta in thetas])


def _logit(scores: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    if scores.ndim == 1:
        return np.asarray(np.nan_to_num(scores * labels))
    at = np.arange(len(labels)), labels.astype(np.int64)
    others = scores.copy()
    others[at] = -np.inf
    return np.asarray(np.nan_to_num(scores[at] - logsumexp(others, axis=1)))


def _auc(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """The chance that a score with the canary is above one without; ties count half."""
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
    return float(below.mean() / (2 * outside.size))


def _at(inside: NDArray[np.float64], outside: NDArray[np.float64], rate: float) -> float:
    """True positives where so many are false."""
    return float((inside > np.quantile(outside, 1 - rate)).mean())
