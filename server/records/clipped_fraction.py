"""Summarise the released fraction of clipped gradients over a run's rounds."""

from __future__ import annotations

import math

from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.clipped_fraction_noise import compute_count_deviation
from parley.server.records.run_progress import RunProgress
from parley.server.records.run_summary import ClippedFraction


def compute_fraction_deviation(plan: ReleasePlan, *, parties: int) -> float | None:
    """Return the standard deviation of the noise on a round's fraction; None without one.

    It is at most that with uniform weights for parties of the minimum size.
    """
    steps = plan.primary.mechanism.training
    if steps is None or not steps.clipped_share:
        return None
    records = plan.mean_records if plan.weights == "size" else plan.min_records
    batches = steps.sampling_rate * records * steps.steps
    of_count = compute_count_deviation(steps.noise_multiplier, steps.clipped_share, steps.steps)
    return of_count / (2 * batches * math.sqrt(parties))


def build_clipped_fraction(plan: ReleasePlan, progress: RunProgress) -> ClippedFraction | None:
    """Return the last round's fraction and the mean over rounds, each with its noise; None without
    one.

    The variation between batches adds to it: at most ½√((1 − q)/(q·n·T)) per party and round.
    """
    totals = progress.totals
    measured = [
        (fraction, deviation)
        for fraction, summed in zip(totals.clipped_fractions, totals.summed, strict=True)
        if not math.isnan(fraction)
        and (deviation := compute_fraction_deviation(plan, parties=summed)) is not None
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
