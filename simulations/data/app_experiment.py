"""A simulation whose parties' records only an app reads, and not Parley."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.client.data.app_data_block import AppDataBlock
from parley.client.data.party_files import find_party_files
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_model
from parley.simulations.data.prepared_data import PreparedData
from parley.simulations.data.simulated_world import StatisticExperiment


@dataclass(frozen=True, kw_only=True)
class AppExperiment(StatisticExperiment):
    """Parties whose records Parley does not read."""

    @property
    def record_counts(self) -> list[int]:
        """No numbers: only the app reads records."""
        return []


def build_app_experiment(job: Job) -> AppExperiment:
    """Build the experiment of a job whose app reads records: each party has a placeholder row.

    Raises:
        JobError, DataError: no file for each party.
    """
    names = _find_paths(job)
    paths = {position: str(path.resolve()) for position, path in enumerate(names)}
    block = AppDataBlock.create(job.parties.count, paths)
    none, sizes = np.zeros((0, 1)), block.sizes
    data = PreparedData(
        rows=block.features,
        labels=block.labels,
        test_rows=none,
        test_labels=none[:, 0],
        sizes=sizes,
        classes=0,
        fingerprint=f"app-data:{job.data.source}",
        contents="",
        row_digests=np.zeros((0, 3), np.uint64),
        schema="",
        label_names=(),
        features={},
        party_names=tuple(path.name for path in names),
    )
    least = job.parties.min_records
    return AppExperiment(
        data=data,
        block=block,
        test_features=data.test_rows,
        test_labels=data.test_labels,
        model=build_model(job, features=1, classes=0),
        lambda_=0.0,
        federation=Federation.from_sizes(sizes, None if least == "auto" else 1),
        size_weights=False,
    )


def _find_paths(job: Job) -> list[Path]:
    """Return a file per party if the source names several; none if the app knows its records."""
    if not job.data.has_several_files:
        return []
    found = find_party_files(job.data.source)
    if len(found) != job.parties.count:
        raise JobError(
            f"Expected parties.count = {len(found)}, the number of files that match "
            f"{job.data.source}, got {job.parties.count}. Use --set parties.count={len(found)}."
        )
    return found
