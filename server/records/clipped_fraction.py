"""The released fraction of clipped gradients over a run: `clipped_fraction` of `summary.json`.

A party's ½ + (Σ (2b_i − 1) + noise)/(2·q·n·T) has noise of √T·2σ_b/(2·q·n·T); the average over m
parties has 1/√m of that (`parley.privacy.accounting.clipped_count`).
"""

from __future__ import annotations

import math

from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.clipped_count import count_deviation
from parley.server.records.progress import Progress
from parley.server.records.summary import ClippedFraction


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
