"""The summary of a run as far as its server knows it: nothing here looks at a record.

A simulation adds what only a simulation may know.

Also here: the released fraction of clipped gradients over a run: `clipped_fraction` of
`summary.json`; what the release after the rounds came to: noisy counts, and what follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.held_out_counts import HeldOutCounts
from parley.client.algorithms.registry import kind_of
from parley.client.contract.feature_map import features_statement
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.subsampled_gaussian import count_deviation
from parley.privacy.sampling.random_stream import NoiseStream
from parley.safe_io.path_names import public_name
from parley.server.jobs.job import Job
from parley.server.planning.run_stages import EVALUATION, Stage
from parley.server.records.guarantee_facts import DataAccount
from parley.server.records.guarantees import guarantee_summaries, record_bounds
from parley.server.records.histogram_evaluation import judged_counts
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import Outcome, Progress
from parley.server.records.run_summary import ClippedFraction, Evaluation, RunSummary


def fraction_deviation(plan: ReleasePlan, *, parties: int) -> float | None:
    """Standard deviation of the noise on a round's fraction; None where none is released.

    With uniform weights for parties of the least size: at most that.
    """
    steps = plan.primary.mechanism.training
    if steps is None or not steps.clipped_share:
        return None
    records = plan.mean_records if plan.weights == "size" else plan.min_records
    batches = steps.sampling_rate * records * steps.steps
    of_count = count_deviation(steps.noise_multiplier, steps.clipped_share, steps.steps)
    return of_count / (2 * batches * math.sqrt(parties))


def clipped_facts(plan: ReleasePlan, progress: Progress) -> ClippedFraction | None:
    """The last round's fraction and the mean over rounds, each with its noise; None without one.

    Batches' own spread comes on top: at most ½√((1 − q)/(q·n·T)) a party and round.
    """
    measured = [
        (line.clipped_fraction, deviation)
        for line in progress.lines
        if line.clipped_fraction is not None
        and (deviation := fraction_deviation(plan, parties=line.parties.summed)) is not None
    ]
    if not measured:
        return None
    fractions, deviations = zip(*measured, strict=True)
    return ClippedFraction(
        last=fractions[-1],
        deviation=deviations[-1],
        mean=math.fsum(fractions) / len(measured),
        mean_deviation=math.hypot(*deviations) / len(measured),
    )


CONFIDENCE = 0.95
"""Of intervals from the noise on held-out counts."""

_DRAWS = 10_000


def noise_on_counts(plan: ReleasePlan) -> float:
    """What the noise on no count exceeds at `CONFIDENCE`, whoever is in the sum; in records."""
    return plan.noise_tail(1 - CONFIDENCE) / plan.encoding.scale


def noise_on_a_count(plan: ReleasePlan, summed: int) -> float:
    """What the noise of so many parties on one count does not exceed at `CONFIDENCE`; in records.

    Of draws of its law, which are no release: whatever law it is, in shares or not.
    """
    stream, count = NoiseStream.from_seed(0, "noise-on-a-count"), -(-_DRAWS // plan.dimension)
    drawn = plan.draw_many(count, stream)
    if plan.shared is not None:
        drawn = np.stack([plan.encoding.decode(plan.deal(summed, stream)) for _ in range(count)])
    return float(np.quantile(np.abs(drawn), CONFIDENCE)) / plan.encoding.scale


def evaluation_facts(
    stages: Sequence[Stage], outcome: Outcome, *, unmeasured: str
) -> Evaluation | None:
    """The evaluation of a run that ended; None where none was asked for.

    Args:
        unmeasured: why it could not be made.
    """
    stage = next((each for each in stages if each.name == EVALUATION), None)
    if stage is None:
        return None
    plan, released = stage.plan, outcome.progress.ahead.get(EVALUATION, {})
    summed = released.get("survivors", 0)
    within = noise_on_a_count(plan, summed or plan.parties)
    found: dict[str, Any] = {"reason": unmeasured or "the rounds did not all run"}
    if released:
        counted = cast(HeldOutCounts, stage.algorithm(outcome.progress.state))
        found = _judged(counted, outcome.progress.state["counts"], within)
    spent = Composition.empty().add(plan.event(plan.primary.unit))
    return Evaluation(
        epsilon=spent.epsilon(plan.primary.delta)[1],
        delta=plan.primary.delta,
        law=plan.primary.mechanism.law,
        scale=plan.primary.mechanism.scale / plan.primary.units(plan.encoding.scale),
        within=within,
        confidence=CONFIDENCE,
        summed=summed,
        asked=plan.parties,
        **found,
    )


def _judged(counted: HeldOutCounts, counts: NDArray[np.float64], within: float) -> dict[str, Any]:
    """The release and what follows from it; labels by their number."""
    table, edges = counts.reshape(-1, counted.classes), counted.edges_of_two
    labels = [str(label) for label in range(counted.classes)]
    judgement = judged_counts(
        table, labels=labels, edges=edges, within=within, proper=counted.proper
    )
    return {"counts": table.tolist(), "edges": edges, "judgement": judgement}


def with_names(evaluation: Evaluation | None, labels: Sequence[str]) -> Evaluation | None:
    """With the names of the classes, where those are known; a server has numbers alone."""
    found = evaluation and evaluation.judgement
    if evaluation is None or not found or len(found.labels) != len(labels):
        return evaluation
    by_label = [each.adding(label=name) for each, name in zip(found.by_label, labels, strict=False)]
    named = found.adding(labels=tuple(labels), by_label=tuple(by_label))
    return evaluation.adding(judgement=named)


def run_summary(
    *,
    job: Job,
    plan: ReleasePlan,
    outcome: Outcome,
    secure_sum: dict[str, Any],
    folder: RunFolder,
    ledger_head: dict[str, Any],
    version: str,
    seconds: float,
    engine: str,
    model: Any = None,
    components: dict[str, Any] | None = None,
    deployment: str | None = None,
    data_accounts: Sequence[DataAccount] = (),
    evaluation: Evaluation | None = None,
    beside: Sequence[Guarantee] = (),
    assumptions: Sequence[str] = (),
) -> RunSummary:
    """The summary of a run that ended, complete or not.

    Figures that would be releases are absent.

    Args:
        components: parties and traffic of the private components' release, if there was one.
        beside: the guarantees of the releases ahead of the rounds and after them that were made.
        assumptions: what the releases rest on beyond their proof.
    """
    progress = outcome.progress
    seconds_by_round = [line.seconds for line in progress.lines]
    sums: dict[str, Any] = {
        **facts_of_rounds(progress.lines),
        "ring_bits": plan.encoding.ring_bits,
        "scale_bits": plan.encoding.scale_bits,
        "inflation": plan.inflation,
        "min_survivors": plan.min_survivors,
        **secure_sum,
    }
    ahead: dict[str, Any] | None = None
    if components:
        ahead = {**components, "noise_point": job.privacy.noise_point}
        for way in ("bytes_up", "bytes_down"):
            sums[way] += components.get(way, 0)
    facts: dict[str, Any] = {
        "format": 2,
        **facts_of_job(job),
        "algorithm_title": kind_of(job.algorithm.kind).title,
        "model_digest": getattr(model, "digest", None),
        "run_dir": str(folder.path),
        "run_id": folder.run_id,
        "ledger_head": ledger_head,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "parley_version": version,
        "engine": engine,
        "status": outcome.status,
        "reason": outcome.reason,
        "min_records": plan.min_records,
        "dimension": plan.parameters,
        "rounds_done": progress.done,
        "guarantees": guarantee_summaries(
            job, plan, progress, engine=engine, beside=beside, assumptions=assumptions
        ),
        "secure_aggregation": sums,
        "seconds": seconds,
        "seconds_per_round": float(np.median(seconds_by_round)) if seconds_by_round else None,
        "deployment": deployment,
        "record_bounds": record_bounds(plan, rounds=progress.done),
        "clipped_fraction": clipped_facts(plan, progress),
        "components": ahead,
        "evaluation": evaluation,
        "data_accounts": tuple(data_accounts) or None,
    }
    return RunSummary.model_validate(facts)


def facts_of_job(job: Job) -> dict[str, Any]:
    """What a summary has from the job as it is."""
    known = job.is_settled
    return {
        "ledger": job.privacy.ledger,
        "algorithm": public_name(job.algorithm.kind),
        "model": public_name(job.model.kind),
        "metric": job.model.metric,
        "class_weights": job.model.weights_of_classes or None,
        "data": job.data.source,
        "features": features_statement(job.model.feature_map) or None if known else None,
        "parties": job.parties.count,
        "weights": job.parties.weights,
        "rounds": job.rounds if known else 0,
    }


def facts_of_rounds(lines: Sequence[RoundLine]) -> dict[str, int]:
    """The traffic of all rounds."""
    return {
        "bytes_up": sum(line.bytes_up for line in lines),
        "bytes_down": sum(line.bytes_down for line in lines),
    }
