"""How networks train, by a rule of public facts alone: each auto of `[dp-sgd]`, and its rounds.

A is the signal over noise of all steps together, as a linear model has it
(`parley.server.jobs.auto_gradient_steps`); with noise inside the parties (fedavg) k = 1, and for a
party's guarantee N is m. Then

    C = ½              a record whose label is given a chance of at most ½ has a longer gradient,
                       by the last layer's bias alone: what is not learned yet counts the same
    τ = A/5            the length of the way of θ, rate · C · T/(1 − β)
    T = 10⌈τ/50⌉       steps of a length of 5 at most; 40 to 250 of them
    β = ½              distributed; fedavg begins anew every round: 0. The mean of later iterates
    q = 4,096/N        at most 1, N as in A: the noise of a budget is as large whatever q is, as
                       long as a step's σ is above 1, and whole data have no coins; batches only
                       spare work
    L                  steps of a round: T/max(4m, 20) with noise inside each of m parties, which
                       leads each away by itself; distributed 10, which are reserved together

docs/methods.md, *Steps of networks by the rule*, says why, and what it gives.

Where an update of a whole party is clipped (fedavg, unit party or both), S is τ over the rounds;
a party's clipped sum of a batch (distributed) has C of each of the qn records that it draws.
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
"""Its authors' rate: its steps are of a length that no gradient says."""

_MAX_LOCAL_RATE = 0.1
"""Rate of a party whose records nobody clips."""


def choose_dp_sgd_settings(
    job: Job, steps: Any, federation: Federation | None, *, sums: bool, sampled_fraction: float
) -> AutoChoices:
    """The rule's choices in the place of each auto.

    Args:
        steps: the job's `[algorithm]`.
        federation: None: they are not known yet, and nothing is chosen.
        sums: every step is a secure sum, with its noise.
        sampled_fraction: the share of the parties that is in a sum.
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
    rate = min(
        1.0, _EXPECTED_BATCH / federation.count_records(private=job.privacy.has_private_sizes)
    )
    rate = replace_auto(given.sampling_rate, rate)
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
    usual = _MOMENTUM if sums and given.optimiser == "sgd" else 0.0  # adam uses none
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
    return AutoChoices(
        {"dp_sgd": settled, "algorithm": learned}, (f"from {facts}", ", ".join(said))
    )
