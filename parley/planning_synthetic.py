"""What a plan says of the one release that synthetic records are made from."""

from __future__ import annotations

import math
from typing import Any

from parley.client.contract.plan import ReleasePlan
from parley.client.data.codes import coded_columns
from parley.client.data.schema import Schema
from parley.server.jobs.job import Job
from parley.server.planning.federation import Federation
from parley.server.records.guarantees import noise_of
from parley.server.records.planned import SyntheticOutlook


def tables_ahead(
    job: Job, tables: Any, release: ReleasePlan, federation: Federation
) -> SyntheticOutlook:
    """Cells, and the noise of one beside the records that the average one holds."""
    columns = coded_columns(Schema.from_toml(federation.schema))
    widest = sorted(columns, key=lambda column: -column.size)[:3]
    return _ahead(
        job,
        release,
        federation,
        released=f"{len(tables.pairs):,} tables of {len(columns)} columns, "
        f"{tables.dimension:,} cells",
        average=federation.total_records * len(tables.pairs) / tables.dimension,
        largest=tuple((column.name, column.size) for column in widest),
    )


def sums_ahead(
    job: Job, summed: Any, release: ReleasePlan, federation: Federation
) -> SyntheticOutlook:
    """Features of every class, and how long the noise on their mean is: a record's is 1 long."""
    return _ahead(
        job,
        release,
        federation,
        released=f"{2 * summed.frequencies:,} random features of {summed.features:,} cells in "
        f"each of {summed.classes} classes and their counts, {summed.dimension:,} coordinates",
    )


def _ahead(job: Job, release: ReleasePlan, federation: Federation, **more: Any) -> SyntheticOutlook:
    noise = noise_of(job, release, release.primary, engine=job.run.engine)
    one = (noise.scale_of_sum or 0.0) * (noise.shares.inflation if noise.shares else 1.0)
    return SyntheticOutlook(
        sensitivity=release.primary.sensitivity * (1 + release.inflation),
        noise=one,
        noise_norm=one * math.sqrt(release.dimension) / federation.total_records,
        vector_bytes=release.dimension * release.encoding.ring_bits // 8,
        **more,
    )
