"""Build a simulation's experiment from a job: read, draw, hold out, split, prepare."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from parley.client.data.class_indices import to_classes
from parley.client.data.schema import Schema, load_schema
from parley.client.data.training_records import Records
from parley.client.features.feature_error import FeatureError
from parley.client.features.row_preparation import build_prepared_rows
from parley.module_loading.plugin_table import load_attribute
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_model
from parley.simulations.data.bundled_datasets import BUNDLED, get_bundled_schema
from parley.simulations.data.data_key_checks import check_files, find_job_files
from parley.simulations.data.job_feature_map import build_feature_map
from parley.simulations.data.memory_check import MIB, get_memory_limit_mib
from parley.simulations.data.partitions import PARTITIONS, split_test
from parley.simulations.data.prepared_data import (
    PreparedData,
    compute_data_key,
    compute_file_digest,
    get_cache_folder,
)
from parley.simulations.data.record_reading import read_sources
from parley.simulations.data.simulated_experiment import Experiment, StatisticExperiment

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows
    from parley.client.features.base import FeatureMap
    from parley.simulations.data.lazy_mapped_rows import RawRows
    from parley.simulations.data.source_records import InMemoryData

_MANY_ROWS = 1 << 12
"""Number of records from which on features are computed a piece at a time."""

_SPLIT_STREAM = 1
"""Separates the draw and split from any other use of the same seed."""


def load_experiment(job: Job, given: InMemoryData | None = None) -> Experiment:
    """Load the experiment of a job: its data, read, drawn, held out, split and prepared.

    Args:
        given: the data, if they are in memory.

    Raises:
        DataError, SchemaError, PartitionError, JobError: what is wrong, with file, row, column.
    """
    if job.algorithm.data_reading:
        build: Any = load_attribute("parley.simulations.data.app_experiment:build_app_experiment")
        return cast(Experiment, build(job, given))
    if given is None:
        check_files(job)
    early = job.resolve_auto().model
    if given is not None or job.data.query or (not early.is_feature_map_open and early.feature_map):
        return build_experiment(job, prepare_data(job, given))
    return build_experiment(job, load_cached_data(job, lambda: prepare_data(job)))


def load_cached_data(job: Job, prepare: Callable[[], PreparedData]) -> PreparedData:
    """Load the job's rows, from a file if they are cached. They are, if the job says so or they
    take too much memory.

    Raises:
        JobError: there is no space to store them.
    """
    before, data = compute_data_key(job), None
    if not job.run.prepared and not get_cache_folder(job).is_dir():
        data = prepare()
        if data.rows.nbytes <= get_memory_limit_mib(job) * MIB:
            return data
    from parley.simulations.data import row_cache  # noqa: PLC0415 - few runs cache rows

    place = row_cache.get_cache_path(job)
    if os.path.lexists(place):
        return row_cache.load_cached(place)
    rows = data or prepare()
    if not job.run.prepared and rows.rows.nbytes <= get_memory_limit_mib(job) * MIB:
        return rows
    return row_cache.cache_rows_at(place, lambda: rows, lambda: compute_data_key(job) == before)


def prepare_data(job: Job, given: InMemoryData | None = None) -> PreparedData:
    """Read, draw, hold out, split and prepare the job's data; raise as `load_experiment`."""
    # The split is never private and never touches the noise: it always has its own seed.
    rng = np.random.default_rng([job.data.seed, _SPLIT_STREAM])
    job = asked = job.resolve_auto()
    records, classes, files = read_sources(job, rng, given)
    schema = _load_job_schema(job) if given is None else given.schema
    contents = "" if records.contents is None else str(records.contents)
    fingerprint = contents if given is not None or job.data.query else _compute_fingerprint(job)
    parties, test = _split(job, records, files, rng)
    sizes = np.array([len(own) for own in parties])
    job = job.resolve_auto(_build_federation(job, sizes, (), schema), classes)
    features = build_feature_map(job)
    raw, intercept = _compute_rows(asked, features, records, schema), job.model.has_intercept
    if job.data.test_source:
        from parley.simulations.data.source_records import read_test  # noqa: PLC0415 - few jobs name test records

        held = read_test(job, classes)
        found = _compute_test_rows(asked, features, held)
        test_rows, test_labels = _prepare_rows(found, intercept=intercept), held.labels
    else:
        test_rows = _prepare_rows(raw, intercept=intercept, order=test)
        test_labels = records.labels[test]
    order = np.concatenate(parties)
    del parties  # Some hundred MiB for a million parties.
    room = None if features else records.buffer
    return PreparedData(
        rows=_prepare_rows(raw, intercept=intercept, order=order, buffer=room),
        labels=records.labels[order],
        test_rows=test_rows,
        test_labels=test_labels,
        sizes=sizes,
        classes=classes,
        fingerprint=fingerprint,
        contents=contents,
        row_digests=records.row_digests,
        schema=schema.to_toml(),
        label_names=schema.label.list_names(job.label_kind(classes)),
        party_names=_find_party_names(job, records, in_memory=given is not None),
        features={**job.model.feature_map, "digest": features.digest} if features else {},
    )


def _find_party_names(job: Job, records: Records, *, in_memory: bool) -> tuple[str, ...]:
    """Return the parties' names in the data, in the parties' order; empty if there are none."""
    if job.data.has_several_files:
        return () if in_memory else tuple(path.name for path in find_job_files(job.data))
    if job.data.partition != "column" or records.groups is None:
        return ()
    names = tuple(str(name) for name in np.unique(records.groups))
    return names if len(names) == job.parties.count else ()


def build_experiment(job: Job, data: PreparedData) -> Experiment:
    """Build the experiment of a job on data that were prepared for it.

    Raises:
        JobError, NetworkError: the model cannot be built for these data.
    """
    schema = Schema.from_toml(data.schema)
    federation = _build_federation(job, data.sizes, data.party_names, schema)
    job = job.resolve_auto(federation, data.classes)
    shared = {
        "data": data,
        "test_features": data.test_rows,
        "lambda_": job.model.regularisation,
        "federation": federation,
        "size_weights": job.parties.weights == "size",
    }
    return _EXPERIMENT_BUILDERS[job.model.learns](job, data, shared)


def _build_federation(
    job: Job, sizes: NDArray[np.int64], names: tuple[str, ...], schema: Schema
) -> Federation:
    """Build the public facts about parties of these sizes."""
    least = job.parties.min_records
    if job.privacy.has_private_sizes and least != "auto":
        # Sizes are private: a smaller party takes part like any other.
        found = replace(Federation.from_sizes(sizes), min_records=least)
    else:
        found = Federation.from_sizes(sizes, None if least == "auto" else least, names)
    columns = len(schema.features)
    return replace(found, schema=schema.to_toml(), numbers=schema.number_count, columns=columns)


Shared = dict[str, Any]


def _build_linear_experiment(job: Job, data: PreparedData, shared: Shared) -> Experiment:
    width = data.rows.shape[1] - job.model.has_intercept
    model = build_model(job, features=width, classes=data.classes)
    return Experiment(
        block=data.build_block(model.loss.to_nearest_labels(data.labels)),
        test_labels=model.loss.to_nearest_labels(data.test_labels),
        model=model,
        **shared,
    )


def _build_statistic_experiment(job: Job, data: PreparedData, shared: Shared) -> Experiment:
    labels, classes = to_classes(data.labels, data.classes)
    return StatisticExperiment(
        block=data.build_block(labels),
        test_labels=data.test_labels,
        model=build_model(job, features=data.rows.shape[1], classes=classes),
        **shared,
    )


def _build_network_experiment(job: Job, data: PreparedData, shared: Shared) -> Experiment:
    from parley.simulations.data.network_experiment import build_network_experiment  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    return build_network_experiment(job, data, shared)


_EXPERIMENT_BUILDERS: dict[str, Callable[[Job, PreparedData, Shared], Experiment]] = {
    "linear": _build_linear_experiment,
    "network": _build_network_experiment,
    "nothing": _build_statistic_experiment,
}
"""What a job's model learns → builder of its simulation's experiment."""


def _load_job_schema(job: Job) -> Schema:
    """Return the schema of the job's data."""
    if job.data.source in BUNDLED:
        return get_bundled_schema(job.data.source)
    return load_schema(job.data.data_schema)


def _compute_fingerprint(job: Job) -> str:
    """Name the source: a bundled set by its name, files by the digest of their bytes.

    Any use of the same files is the same data to the ledger. Another model, schema, draw or split
    does not start a new budget. Neither does another file of the same rows, which
    `PreparedData.contents` identifies. A digest identifies the data: protect a ledger as strictly
    as the data.
    """
    source = job.data.source
    if source == "synthetic":
        return f"bundled:{source}:{job.data.seed}"
    if source in BUNDLED:
        return f"bundled:{source}"
    digests = "".join(sorted(map(compute_file_digest, find_job_files(job.data))))
    return "sha256:" + hashlib.sha256(digests.encode()).hexdigest()


def _compute_rows(
    job: Job, features: FeatureMap | None, records: Records, schema: Schema
) -> RawRows:
    """Return `[N, p]` the raw rows: cells, or features of the chosen map."""
    cells = records.features
    with translate_errors(FeatureError, JobError):
        if features is None:
            if not job.model.is_feature_map_open:
                return cells
            # If a rule might have chosen a map, rows are scaled only now.
            if isinstance(cells, np.ndarray):
                return schema.scale_rows(np.asarray(cells, np.float64))
        if job.model.learns == "linear" and len(cells) >= _MANY_ROWS:
            from parley.simulations.data.lazy_mapped_rows import map_when_read  # noqa: PLC0415 - most jobs have few records

            if (mapped := map_when_read(features, schema, cells)) is not None:
                return mapped
        if features is None:
            return schema.scale_rows(np.asarray(cells, np.float64))
        return features.bind(schema).compute(cells)


def _prepare_rows(
    raw: RawRows,
    *,
    intercept: bool,
    order: NDArray[np.int64] | None = None,
    buffer: NDArray[np.floating[Any]] | None = None,
) -> FeatureRows:
    """Build prepared rows, as `build_prepared_rows` does; sparse if they are many."""
    if isinstance(raw, np.ndarray):
        return build_prepared_rows(raw, intercept=intercept, order=order, buffer=buffer)
    from parley.simulations.data.lazy_mapped_rows import prepare_raw_rows  # noqa: PLC0415 - most jobs have few records

    return prepare_raw_rows(raw, intercept=intercept, order=order)


def _compute_test_rows(job: Job, features: FeatureMap | None, held_out: Records) -> RawRows:
    schema = load_schema(job.data.test_schema or job.data.data_schema)
    return _compute_rows(job, features, held_out, schema)


def _split(
    job: Job, records: Records, files: list[int] | None, rng: np.random.Generator
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Return every party's training rows, and the test rows, held out before the split."""
    data, count = job.data, job.parties.count
    if files is not None:
        starts = np.cumsum([0, *files])
        parts = [split_test(size, data.test_fraction, rng) for size in files]
        train = [start + own for start, (own, _) in zip(starts, parts, strict=False)]
        held_out = [start + held for start, (_, held) in zip(starts, parts, strict=False)]
        return train, np.concatenate(held_out)
    rows, test = split_test(len(records), data.test_fraction, rng)
    least = 1 if job.parties.min_records == "auto" else job.parties.min_records
    if job.privacy.has_private_sizes:
        least = 1  # The public number bounds no party's size.
    options: dict[str, dict[str, Any]] = {
        "dirichlet": {"alpha": data.dirichlet_alpha},
        "sizes": {"sizes": data.sizes},
    }
    by = {"column": records.groups, "dirichlet": records.labels}.get(data.partition)
    values, more = rows if by is None else by[rows], options.get(data.partition, {})
    parties = PARTITIONS[data.partition](values, count, rng, min_records=least, **more)
    return [rows[own] for own in parties], test
