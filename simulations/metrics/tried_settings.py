"""Try settings on a simulated run's own data and parties before they are advised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parley.client.data.schema import Schema
from parley.server.jobs.job import Job
from parley.server.planning.job_planner import build_model
from parley.server.planning.run_stages import Planned
from parley.simulations.data.public_shape import compute_width
from parley.simulations.data.simulated_experiment import Experiment


def is_accepted_here(job: Job, world: Experiment, keys: Sequence[str]) -> bool:
    """Return whether a run of the job with these settings would be accepted on the same data."""

    def build(tried: Job) -> Planned:
        settled = tried.resolve_auto(world.federation, world.data.classes)
        model, features = world.model, world.block.features.shape[1]
        if settled.model != job.model:
            if settled.model.feature_map != job.model.feature_map:
                features = compute_width(settled, Schema.from_toml(world.data.schema))
            model = build_model(settled, features=features, classes=world.data.classes)
        return replace(world, model=model).build_stages(settled, features=features)

    from parley.server.planning.remedies import is_accepted  # noqa: PLC0415 - most runs try no setting

    return is_accepted(job, build, keys)
