"""Evaluate a real run's model on public records that the server holds (`data.test-source`).

The model is already released and the records are public, so the metrics cost no budget. The records
are read before the run begins, so that an unreadable file costs nothing. They are read by the
parties' own schema: their copy and the server's must mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.column_types import READINGS
from parley.client.data.data_error import DataError
from parley.client.data.record_reading import read_records
from parley.client.data.schema import Schema, load_schema
from parley.client.data.table_reading import read_tables
from parley.prediction.estimator import Estimator
from parley.prediction.model_loading import load_model
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_summary import PublicTest
from parley.simulations.data.simulated_experiment import Predictions
from parley.simulations.metrics.evaluation import evaluate_predictions


@dataclass(frozen=True, kw_only=True)
class PublicTestSet:
    """Public records: their file, their schema, the schema's file, and the labels `[N]`."""

    __test__ = False  # pytest must not collect it

    source: Path
    schema: Schema
    path: Path
    labels: NDArray[Any]


def load_test_set(job: Job) -> PublicTestSet | None:
    """Return the public test set that `data.test-source` names, or None if the key is empty.

    Raises:
        JobError, DataError, SchemaError: what is wrong with the job or the files.
    """
    if not job.data.test_source:
        return None
    if not job.model.measured:
        raise JobError("Expected no data.test-source in a job that trains no model.")
    if not job.data.test_schema:
        raise JobError(
            "Expected data.test-schema with data.test-source: the server's copy of the schema file "
            "that all parties have."
        )
    path = Path(job.data.test_schema)
    schema = load_schema(path)
    records = read_records(job.data.test_source, schema, job.label_kind(schema.classes))
    if not len(records):
        raise JobError(f"Expected records in {job.data.test_source}, got none.")
    source = Path(job.data.test_source)
    return PublicTestSet(source=source, schema=schema, path=path, labels=records.labels)


def evaluate_public_test(run: Path, job: Job, test: PublicTestSet) -> PublicTest:
    """Return the metrics of a run folder's model; raise DataError if the file has changed."""
    named = (job.model.kind, str(getattr(job.model, "features", "")))
    own = tuple(name for name in named if ":" in name)
    model = load_model(run, schema=test.path, own_models=own)
    tables = read_tables(test.source, model.schema, only=list(model.schema.features))
    scores = np.concatenate([model.compute_scores(model.encode_table(table)) for table in tables])
    if len(scores) != len(test.labels):
        raise DataError(
            f"{len(test.labels)} records, as before the run", "others", path=test.source
        )
    found = evaluate_predictions(_predict(model, scores, test.labels))
    return PublicTest(records=len(scores), judgement=found)


def _predict(
    model: Estimator, scores: NDArray[np.float64], truth: NDArray[Any]
) -> Predictions | None:
    """Return the model's predictions for records, or None if some scores are not finite."""
    if not np.isfinite(scores).all():
        return None
    if model.is_regression:
        return Predictions(values=scores, truth=truth)
    chances = model.to_probabilities(scores)
    signed = READINGS.get(model.label) == "positive"
    return Predictions(
        values=np.arctan(scores) / np.pi + 0.5 if chances is None else chances,
        truth=(truth > 0).astype(np.int64) if signed else truth.astype(np.int64),
        names=model.label_names,
        probabilities=chances is not None,
    )
