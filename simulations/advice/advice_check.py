"""Check settings against a simulated run's own data and parties before they are advised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from parley.client.data.schema import Schema
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, build_model
from parley.server.planning.run_stages import Planned
from parley.simulations.data.job_feature_map import compute_width
from parley.simulations.data.simulated_experiment import Experiment

ROUNDS = "algorithm.rounds=auto"
_AUTO_OF_NETWORKS = (
    "sampling-rate",
    "batch-size",
    "local-epochs",
    "local-steps",
    "clip-norm",
    "learning-rate",
    "momentum",
)
_AUTO = ("rounds", "learning-rate", "momentum", "nesterov", "clip-norm", "average")


def is_accepted_here(job: Job, world: Experiment, keys: Sequence[str]) -> bool:
    """Return whether a run of the job with these settings would be accepted on the same data."""

    def build(tried: Job) -> Planned:
        settled = tried.resolve_auto(world.federation, world.data.classes)
        model, features = world.model, world.block.features.shape[1]
        if settled.model != job.model:
            if settled.model.feature_map != job.model.feature_map:
                features = compute_width(settled, Schema.from_toml(world.data.schema))
            model = build_model(settled, features=features, classes=world.data.classes)
        return replace(world.plan_inputs, model=model, features=features).build(settled)

    from parley.server.planning.budget_remedies import is_accepted  # noqa: PLC0415 - most runs try no setting

    return is_accepted(job, build, keys)


def find_off_rule_keys(job: Job, experiment: Experiment) -> list[str]:
    """Return keys that leave the steps to the rule of public facts, if it clearly differs."""
    autos = [f"algorithm.{key}=auto" for key in _AUTO]
    if job.model.learns == "network":
        autos = [ROUNDS, *(f"dp-sgd.{key}=auto" for key in _AUTO_OF_NETWORKS)]
    else:
        autos.append("model.lambda=auto")
    try:
        asked = load_job(values=job.to_values(), overrides=autos)
        ruled = asked.resolve_auto(experiment.federation, experiment.data.classes)
    except JobError:
        return []
    if job.model.learns == "network":
        paths = [_compute_step_length(each, experiment) for each in (job, ruled)]
        pairs = list(zip(*paths, strict=True))
        own, other = job.to_values(), ruled.to_values()
        differ = [key for key in autos[1:] if _get_value(own, key) != _get_value(other, key)]
        # Rounds and steps together determine the path.
        found = [ROUNDS, *differ]
    elif getattr(ruled.algorithm, "learning_rate", "auto") == "auto":
        return []  # There is no rule for it.
    else:
        pairs = [(job.rounds, ruled.rounds)]
        pairs.append((job.model.regularisation, ruled.model.regularisation))
        found = [ROUNDS]
    return found if any(max(a, b) > 2 * min(a, b) for a, b in pairs) else []


def _get_value(values: dict[str, dict[str, Any]], key: str) -> Any:
    section, name = key.removesuffix("=auto").split(".")
    return values[section][name]


def _compute_step_length(job: Job, experiment: Experiment) -> tuple[float, float]:
    """Return the path length of a network's steps, and q."""
    algorithm: Any = build_algorithm(job, experiment.model, experiment.federation)
    training = algorithm.training
    length = training.max_step / (1 - training.momentum)
    return length * training.steps * job.rounds, training.sampling_rate
