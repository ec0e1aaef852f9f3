"""Word what a job costs beyond its budgets, with settings that may make it cheaper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_exact, format_rounded_down, format_rounded_up
from parley.privacy.ledger.budget import DatasetBudget
from parley.server.jobs.job import Job
from parley.server.jobs.privacy_section import UnitBudget


def describe_cost_beyond_budget(
    job: Job, beyond: Sequence[tuple[UnitBudget, DatasetBudget, Composition]]
) -> tuple[str, list[str], list[str]]:
    """Return a message, settings that may make the job cheaper, and settings that accept its cost.

    Args:
        beyond: each budget that does not cover the job, as requested and as registered, with all
            that the job charges to it.
    """
    messages, cheaper, accepted = list[str](), list[str](), list[str]()
    for asked, budget, charged in beyond:
        conversion, epsilon = charged.compute_lowest_epsilon(budget.delta)
        if budget.certificate.is_adaptive:
            conversion, epsilon = str(budget.certificate), budget.compute_epsilon(charged)
        scope = f"(unit {budget.unit}, {budget.neighbouring})"
        cheaper.append(_find_cheaper_setting(job, asked))
        if math.isinf(epsilon):
            messages.append(
                f"This job has no finite ε at δ = {format_exact(budget.delta)} {scope}: "
                f"{_describe_infinite(charged, budget.delta)}"
            )
            cheaper += _find_smaller_epsilon(job, asked, charged)
        else:
            cost = format_rounded_up(epsilon)
            messages.append(
                f"This job costs ε = {cost} at δ = "
                f"{format_exact(budget.delta)} by {conversion} {scope}, more than its data's "
                f"budget of ε = {format_exact(budget.epsilon)}."
            )
            accepted.append(f"privacy.dataset-{asked.key_prefix}epsilon={cost}")
    return messages[0], cheaper, accepted


def _find_cheaper_setting(job: Job, budget: UnitBudget) -> str:
    """Return the setting that keeps the job within its budget, as it is typed."""
    if budget.dataset_epsilon < budget.total:
        return f"privacy.{budget.key_prefix}epsilon={format_exact(budget.dataset_epsilon)}"
    if job.dp_sgd.noise_multiplier != "auto":
        return "dp-sgd.noise-multiplier=auto"
    if job.privacy.calibration == "as-printed":
        return "privacy.calibration=exact"
    return "privacy.noise=auto"


def _find_smaller_epsilon(job: Job, budget: UnitBudget, taken: Composition) -> list[str]:
    """Return the second setting, needed if samplers take all of δ at the requested ε."""
    if not taken.sampler_distance or not budget.delta:
        return []
    # Part of δ that is enough for calibrated noise. Every party may draw a share of that noise.
    draws = 4 * job.parties.count
    most = math.log(max(budget.noise_delta / (draws * float(taken.sampler_distance)), math.e))
    if budget.epsilon <= most:
        return []
    return [f"privacy.{budget.key_prefix}epsilon={format_rounded_down(most, 2)}"]


def _describe_infinite(taken: Composition, delta: float) -> str:
    """Return the reason why no finite ε is proved for a composition."""
    conversion, epsilon = replace(taken, sampler_distance=Fraction(0)).compute_lowest_epsilon(delta)
    if math.isinf(epsilon):
        return "no account is proved for this number of steps with so little noise."
    return (
        f"the exact noise distribution would cost ε = {format_rounded_up(epsilon)} by "
        f"{conversion}, and at that ε the sampler's distance from it takes more than δ."
    )
