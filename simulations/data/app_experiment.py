"""A simulation whose parties' records only an app reads, and not Parley."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parley.client.data.app_data_block import AppDataBlock
from parley.client.data.party_file_pattern import find_party_files
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_model
from parley.simulations.data.prepared_data import PreparedData
from parley.simulations.data.simulated_experiment import StatisticExperiment


def build_app_experiment(job: Job, given: Any = None) -> StatisticExperiment:
    """Build the experiment of a job whose app reads records: each party has a placeholder row.

    Args:
        given: data in memory, which are refused.

    Raises:
        JobError, DataError: no file for each party.
    """
    if given is not None:
        raise JobError(
            f"Expected no data in memory with algorithm.kind = {job.algorithm.kind!r}, whose app "
            "reads its records by itself."
        )
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
    return StatisticExperiment(
        data=data,
        block=block,
        test_features=none,
        test_labels=data.test_labels,
        model=build_model(job, features=1, classes=0),
        lambda_=0.0,
        federation=Federation.from_sizes(sizes, None if job.parties.min_records == "auto" else 1),
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
