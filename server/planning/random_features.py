"""From a job to the random features that are summed, by the public schema alone."""

from __future__ import annotations

import math
from dataclasses import replace

from parley.client.algorithms.own import AnyRows
from parley.client.algorithms.random_features import RandomFeatures, waves_digest
from parley.client.data.codes import array_of, class_names, coded_columns
from parley.client.data.columns import ArrayColumn
from parley.client.data.schema import SchemaError
from parley.privacy.accounting.guarantee import Neighbouring
from parley.server.jobs import synthetic as jobs_synthetic
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.planning.federation import Federation
from parley.server.planning.marginals import schema_of, sum_bound

_TABLE_SCALE = 2.0
_ARRAY_SCALE = math.sqrt(105 / 784)
"""Of one cell: √105 of 28×28 (arXiv:2002.11603), in proportion to the root of their number."""


def random_features(
    job: Job,
    settings: jobs_synthetic.RandomFeatures,
    model: AnyRows,
    federation: Federation | None,
) -> RandomFeatures:
    """The features of a job's records.

    Raises:
        JobError: another schema than the parties', images that are not square, too many weights or
            coordinates.
    """
    schema = schema_of(federation, settings.kind)
    try:
        array = array_of(schema)
        names = class_names(schema)
        sizes = () if array else tuple(each.size for each in coded_columns(schema)[:-1])
    except SchemaError as error:
        raise JobError(str(error)) from error
    wide = array[1].width if array else sum(sizes)
    if model.features != wide:
        raise JobError(
            f"Expected records of {wide} codes or cells, as data.schema says, got "
            f"{model.features}: give the server a copy of the parties' schema."
        )
    if array:
        _check_square(*array)
    scale = settings.length_scale
    if scale == "auto":
        scale = _ARRAY_SCALE * math.sqrt(wide) if array else _TABLE_SCALE
    try:
        chosen = RandomFeatures(
            features=wide,
            sizes=sizes,
            classes=len(names),
            frequencies=settings.frequencies,
            length_scale=scale,
            seed=settings.seed,
            digest="",
            neighbouring=Neighbouring(job.privacy.neighbouring),
            bound=sum_bound(job, federation),
        )
        # W is drawn when it is known to be of a size that a machine can hold.
        digest = waves_digest(wide, settings.frequencies, scale, settings.seed)
    except ValueError as error:
        raise JobError(str(error)) from error
    return replace(chosen, digest=digest)


def _check_square(name: str, column: ArrayColumn) -> None:
    if len(column.shape) > 2 or len(set(column.shape)) != 1:
        raise JobError(
            f"Expected an array of one axis, or square images, got {name!r} of shape "
            f"{list(column.shape)}."
        )
