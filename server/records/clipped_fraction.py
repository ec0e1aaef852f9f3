"""The released fraction of clipped gradients over a run: `clipped_fraction` of `summary.json`.

A party's ½ + (Σ (2b_i − 1) + noise)/(2·q·n·T) has noise of √T·2σ_b/(2·q·n·T); the average over m
parties has 1/√m of that (`parley.privacy.accounting.clipped_count`).
"""

from __future__ import annotations

import math
from typing import Any

from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.clipped_count import count_deviation
from parley.privacy.mechanisms.dp_sgd import PartySteps
from parley.server.records.progress import Progress

__all__ = ["clipped_facts", "fraction_deviation"]


def fraction_deviation(plan: ReleasePlan, *, parties: int) -> float | None:
    """Standard deviation of the noise on a round's fraction; None where none is released.

    With uniform weights for parties of the least size: at most that.
    """
    steps = plan.primary.mechanism
    if not isinstance(steps, PartySteps) or not steps.clipped_share:
        return None
    records = plan.mean_records if plan.weights == "size" else plan.min_records
    batches = steps.sampling_rate * records * steps.steps
    of_count = count_deviation(steps.noise_multiplier, steps.clipped_share, steps.steps)
    return of_count / (2 * batches * math.sqrt(parties))


def clipped_facts(plan: ReleasePlan, progress: Progress) -> dict[str, Any]:
    """The last round's fraction and the mean over rounds, each with its noise; empty without one.

    Batches' own spread comes on top: at most ½√((1 − q)/(q·n·T)) a party and round.
    """
    told = [line for line in progress.lines if line.clipped_fraction is not None]
    noise = [fraction_deviation(plan, parties=line.parties.summed) for line in told]
    known = [each for each in noise if each is not None]
    if not known:
        return {}
    return {
        "clipped_fraction": {
            "last": told[-1].clipped_fraction,
            "deviation": known[-1],
            "mean": math.fsum(line.clipped_fraction or 0.0 for line in told) / len(told),
            "mean_deviation": math.hypot(*known) / len(known),
        }
    }
