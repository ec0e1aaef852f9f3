"""Choose how networks train from public facts: every auto of `[dp-sgd]`, and the rounds.

A is the signal-to-noise ratio of all steps together, as for linear models
(`parley.server.jobs.auto_gradient_steps`). With noise inside the parties (fedavg), k = 1. For a
party's guarantee, N is m. Then

    C = ½              a record has a longer gradient, from the last layer's bias alone, if its
                       label has probability at most ½: all records not learned yet count the same
    τ = A/5            length of the path of θ, rate · C · T/(1 − β)
    T = 10⌈τ/50⌉       steps of length at most 5; 40 to 250 of them
    β = ½              distributed; 0 for fedavg, which restarts every round. Later iterates are
                       averaged
    q = 4,096/N        at most 1, N as in A. While a step's σ is above 1, the noise of a budget does
                       not depend on q, and full batches need no coins. Batches only save work
    L                  steps per round: T/max(4m, 20) with noise inside each of m parties, because
                       each moves away on its own; 10 if distributed, reserved together

docs/features.md, *How auto chooses steps of networks*, gives reasons and results.

If a whole party's update is clipped (fedavg, unit party or both), S is τ over the rounds. If a
party's clipped sum of a batch is (distributed), it has C for each of the qn sampled records.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parley.privacy.accounting.threat_model import Unit
from parley.safe_io.plurals import format_noun
from parley.server.jobs.algorithm_base import AutoChoices
from parley.server.jobs.auto_settings import compute_signal
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.section_base import replace_auto

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

_CLIP_NORM, _PATH_SHARE, _MOMENTUM = 0.5, 0.2, 0.5
_MIN_STEPS, _MAX_STEPS, _STEP_LENGTH = 40, 250, 5.0
_EXPECTED_BATCH = 4096
_ADAM_RATE = 1e-3
"""Learning rate of Adam's authors. The gradient does not determine the length of Adam's steps."""

_MAX_LOCAL_RATE = 0.1
"""Maximum learning rate in a party if no record's gradient is clipped."""


def choose_dp_sgd_settings(
    job: Job, steps: Any, federation: Federation | None, *, sums: bool, sampled_fraction: float
) -> AutoChoices:
    """Return the rule's choices for each auto.

    Args:
        steps: the job's `[algorithm]`.
        federation: None if not known yet; then nothing is chosen.
        sums: every step is a secure sum with its noise.
        sampled_fraction: fraction of the parties that is in a sum.
    """
    if federation is None:
        return AutoChoices()
    given, units = job.dp_sgd, job.privacy.units
    found = [
        compute_signal(
            job,
            federation,
            own,
            noise_per_party=own.unit is Unit.RECORD and not sums,
            sampled_fraction=sampled_fraction,
        )
        for own in job.privacy.budgets
    ]
    signal, facts = min(found)
    way = signal * math.sqrt(1 - job.model.components_share) * _PATH_SHARE
    total = min(max(10 * math.ceil(way / (10 * _STEP_LENGTH)), _MIN_STEPS), _MAX_STEPS)
    records = federation.count_records(private=job.privacy.has_private_sizes)
    rate = replace_auto(given.sampling_rate, min(1.0, _EXPECTED_BATCH / records))
    if given.batch_size != "auto":
        rate = min(1.0, given.batch_size / federation.min_records)
    local = 10 if sums else max(1, total // max(4 * federation.parties, 20))
    if steps.rounds != "auto":
        local = max(1, round(total / steps.rounds))
    if given.local_epochs != "auto":
        local = max(1, round(given.local_epochs / rate))
    local = replace_auto(given.local_steps, local)
    rounds = replace_auto(steps.rounds, max(1, math.ceil(total / local)))
    clip = replace_auto(given.clip_norm, _CLIP_NORM)
    usual = _MOMENTUM if sums and given.optimiser == "sgd" else 0.0  # Adam does not use it.
    momentum = replace_auto(given.momentum, usual)
    chosen: dict[str, Any] = {
        "clip_norm": clip if Unit.RECORD in units else "auto",
        "momentum": momentum,
        "learning_rate": way * (1 - momentum) / (rounds * local * clip),
    }
    if given.batch_size == "auto":
        chosen["sampling_rate"] = rate
    if given.local_epochs == "auto":
        chosen["local_steps"] = local
    if Unit.PARTY in units:
        kept = 1 - given.server_momentum if given.server_optimiser == "momentum" else 1.0
        whole = way * kept / rounds
        if sums:
            whole = clip * rate * federation.min_records
        chosen["party_clip_norm"] = whole = replace_auto(given.party_clip_norm, whole)
        if not sums:
            chosen["learning_rate"] = min(_MAX_LOCAL_RATE, 2 * whole / local)
    if given.optimiser == "adam":
        chosen |= {"learning_rate": _ADAM_RATE}
    open_keys = [key for key in chosen if getattr(given, key) == "auto" and chosen[key] != "auto"]
    if not open_keys and steps.rounds != "auto":
        return AutoChoices()
    settled = given.model_copy(update={key: chosen[key] for key in open_keys})
    said = (
        f"{rounds:,} {format_noun(rounds, 'round')}, steps in each {local:,}, batches of q = "
        f"{rate:.3g}",
        *([f"clip norm {clip:.3g}"] if Unit.RECORD in units else ()),
        *([f"clip norm of parties {settled.party_clip_norm:.3g}"] if Unit.PARTY in units else ()),
        f"rate {settled.learning_rate:.3g}, momentum {momentum:.3g}",
    )
    learned = steps.model_copy(update={"rounds": rounds})
    reasons = (f"from {facts}", ", ".join(said))
    return AutoChoices({"dp_sgd": settled, "algorithm": learned}, reasons)
