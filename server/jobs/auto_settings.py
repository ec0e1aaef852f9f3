"""Choose what a job leaves to a rule from public facts: steps, λ, clip norm and features.

The steps are those of `parley.server.jobs.auto_gradient_steps`, if the noise is Gaussian. Features
of a table are linear splines (`parley.client.features.bins_and_splines`) if the signal-to-noise
ratio A pays for the additional columns: none if A per number is below 35, 4 intervals below 200,
else 8. What the job sets stays.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.safe_io.plurals import format_noun
from parley.server.jobs.algorithm_base import AutoChoices
from parley.server.jobs.auto_gradient_steps import GradientStepChoices, choose_gradient_steps
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.model_base import ModelSection
from parley.server.jobs.privacy_section import UnitBudget
from parley.server.jobs.section_base import JobSection

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

DEFAULT_ROUNDS = 10
"""Number of rounds if a job leaves them open and no rule applies."""

_SPLINE_THRESHOLDS = ((200.0, 8), (35.0, 4))
"""Threshold of A per numeric column of a record, and the number of spline intervals from there on.
"""


def apply_defaults(job: Job, steps: Any, reason: str) -> AutoChoices:
    """Return ten rounds, and columns as they are.

    Args:
        steps: the job's `[algorithm]`.
        reason: why no rule applies.
    """
    sections = {}
    said = []
    if steps.releases is None and steps.rounds == "auto":
        sections["algorithm"] = steps.model_copy(update={"rounds": DEFAULT_ROUNDS})
        said.append(f"{DEFAULT_ROUNDS} rounds")
    if job.model.is_feature_map_open:
        sections["model"] = job.model.model_copy(update={"features": "none"})
        said.append("columns as they are")
    return AutoChoices(sections, (f"{', '.join(said)}: {reason}",) if said else ())


def apply_rule(job: Job, steps: Any, federation: Federation | None, classes: int) -> AutoChoices:
    """Return the rule's choices for each auto.

    Args:
        steps: the job's `[algorithm]`, gradient perturbation's.
        federation: None if not known yet; then nothing that needs it is chosen.
    """
    law = MECHANISMS.get(job.noise)
    if job.privacy.delta == 0 or (law is not None and not law.calibrations):
        noise = f"{job.noise} at δ = {format_exact(job.privacy.delta)}"
        return apply_defaults(job, steps, f"the rule is for Gaussian noise, this is {noise}")
    if federation is None:
        return AutoChoices()
    signal, facts = compute_signal(job, federation, job.privacy.budgets[0])
    sections: dict[str, JobSection] = {}
    reasons, mapped = [], job.model
    if mapped.is_feature_map_open:
        update, why = _choose_features(signal, federation)
        sections["model"] = mapped = mapped.model_copy(update=update)
        reasons.append(why)
    if steps.rounds == "auto":
        model = job.model.build_linear_model(1, classes)
        ruled = choose_gradient_steps(
            signal=signal,
            lipschitz=model.lipschitz,
            curvature=model.smoothness,
            targets=job.model.metric == "r2",
        )
        if not has_level(mapped):
            ruled = replace(ruled, level_rounds=0, rounds=ruled.rounds - ruled.level_rounds)
        sections = {"algorithm": _fill_autos(steps, ruled), "model": _fill_autos(mapped, ruled)}
        reasons.insert(0, _format_steps(sections["algorithm"], sections["model"]))
    return AutoChoices(sections, (f"from {facts}", *reasons) if reasons else ())


def has_level(model: ModelSection) -> bool:
    """Return whether the mean error of the model's predictions can be learned.

    It can if slopes are residuals and a model that returns 1 for every row is known (a constant, or
    linear splines).
    """
    hats = getattr(model, "features", "none") == "hats"
    return model.residuals and (model.has_intercept or hats)


def _choose_features(signal: float, federation: Federation) -> tuple[dict[str, Any], str]:
    """Return keys of `[model]`, and the reason."""
    plain: dict[str, Any] = {"features": "none"}
    if not federation.numbers:
        return plain, "columns as they are: none is numeric"
    for each, intervals in _SPLINE_THRESHOLDS:
        needed = f"{each:g} for each of {federation.numbers} numeric columns"
        if signal >= each * federation.numbers:
            hats = {"features": "hats", "feature_settings": {"intervals": intervals}}
            return hats, f"hats of {intervals} intervals: A is at least {needed}"
    return plain, f"columns as they are: A is below {needed}"


def _format_steps(steps: Any, model: Any) -> str:
    """Format the steps as one line."""
    descent = "Nesterov's momentum" if steps.nesterov is True else "momentum"
    level = steps.level_rounds
    return (
        f"{steps.rounds} {format_noun(steps.rounds, 'round')} at the rate "
        f"{steps.learning_rate:.3g}, {descent} "
        f"{steps.momentum:.3g}, clip norm {steps.clip_norm:.3g}, λ = {model.lambda_:.3g}"
        + (f", the last {level} for the mean error of all predictions" if level else "")
    )


def compute_signal(
    job: Job,
    federation: Federation,
    budget: UnitBudget,
    *,
    noise_per_party: bool = False,
    sampled_fraction: float = 1.0,
) -> tuple[float, str]:
    """Return A of `parley.server.jobs.auto_gradient_steps` for one unit's budget, and the facts
    behind it.

    Args:
        noise_per_party: every party adds its own noise, which hides its records from all others.
        sampled_fraction: fraction of the parties that is in a sum; the others pay nothing for it.
    """
    point, moved = job.privacy.point, Neighbouring(job.privacy.neighbouring).radii
    least, colluders = point.split(least=job.min_survivors, colluders=job.corrupt)
    # If no party is honest, the planner refuses the job with its own message.
    honest = max(least - colluders, 1) if point.in_contributions else federation.parties
    mu = compute_gaussian_mu(budget.epsilon, budget.delta)
    records = federation.count_records(private=job.privacy.has_private_sizes)
    whole = budget.unit is Unit.PARTY
    units = federation.parties if whole else records
    signal = units * mu * math.sqrt((1 if noise_per_party else honest) / federation.parties) / moved
    signal *= math.sqrt(sampled_fraction)
    shares = (
        f"{honest:,} honest {format_noun(honest, 'share')} of noise, "
        if point.in_contributions
        else ""
    )
    if noise_per_party:
        shares = "noise inside each, "
    facts = (
        f"{'' if whole else f'N = {records:,} records, '}m = {federation.parties:,} "
        f"{format_noun(federation.parties, 'party')}, {shares}ε = {format_exact(budget.epsilon)}, "
        f"δ = {format_exact(budget.delta)}: signal-to-noise ratio A = {signal:,.3g}"
    )
    return signal, facts


def _fill_autos(section: JobSection, steps: GradientStepChoices) -> JobSection:
    """Return the section with the rule's number for each auto."""
    ruled = asdict(steps)
    autos = [key for key in ruled if getattr(section, key, None) == "auto"]
    return section.model_copy(update={key: ruled[key] for key in autos})
