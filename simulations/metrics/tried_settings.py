"""Try settings on a simulated run's own data and parties before they are advised."""

from __future__ import annotations

from collections.abc import Sequence

from parley.client.data.schema import Schema
from parley.server.jobs.job import Job
from parley.server.planning.job_planner import algorithm_for, model_for
from parley.server.planning.run_stages import stages_of
from parley.server.planning.stage_planner import Planned, is_accepted
from parley.simulations.data.public_shape import width_of
from parley.simulations.data.simulated_world import Experiment


def is_accepted_here(job: Job, world: Experiment, keys: Sequence[str]) -> bool:
    """Return whether a run of the job with these settings would be accepted on the same data."""

    def build(tried: Job) -> Planned:
        settled = tried.settled(world.federation, world.data.classes)
        model, features = world.model, world.block.features.shape[1]
        if settled.model != job.model:
            if settled.model.feature_map != job.model.feature_map:
                features = width_of(settled, Schema.from_toml(world.data.schema))
            model = model_for(settled, features=features, classes=world.data.classes)
        algorithm = algorithm_for(settled, model, world.federation)
        stages = stages_of(
            settled,
            algorithm=algorithm,
            federation=world.federation,
            features=features,
            components=world.components,
        )
        return algorithm, stages

    return is_accepted(job, build, keys)
