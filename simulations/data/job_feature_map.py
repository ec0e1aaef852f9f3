"""Determine the columns that a job's records have once its feature map has read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.client.data.schema import Schema
from parley.client.features.feature_error import FeatureError
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError

if TYPE_CHECKING:
    from parley.client.features.base import FeatureMap


def compute_width(job: Job, schema: Schema | None) -> int:
    """Return p, the width of the rows that a resolved job learns from; 1 without a schema."""
    features = build_feature_map(job)
    if features is None or schema is None:
        return schema.dimension if schema else 1
    with translate_errors(FeatureError, JobError):
        return features.bind(schema).width


def build_feature_map(job: Job) -> FeatureMap | None:
    """Return the public feature map of the job's records, or None.

    Raises:
        JobError: there is no such map, or its settings are refused.
    """
    named = job.model.feature_map
    if not named:
        return None
    from parley.client.features.map_building import build_map  # noqa: PLC0415 - spares the maps for a job without one

    place = getattr(job.model, "features", "")
    with translate_errors(FeatureError, JobError):
        return build_map(named["name"], named["settings"], own_maps={named["name"]: place})
