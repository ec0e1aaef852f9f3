"""A data set of records: a file, or a database's rows, read by its schema and prepared."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.refusals import Reason
from parley.client.data.data_sources import get_source_name
from parley.client.data.label_reader_registry import LABEL_READERS
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.record_reading import read_records
from parley.client.data.schema import load_public_schema
from parley.client.features.base import BoundFeatureMap
from parley.client.features.feature_cache import compute_features
from parley.client.features.feature_error import FeatureError
from parley.client.features.row_preparation import build_prepared_rows
from parley.client.party.data_refusals import check_size, decline_data_errors
from parley.client.party.loaded_dataset import DatasetRequest, LoadedDataset


def load_record_dataset(request: DatasetRequest) -> LoadedDataset:
    """Read and prepare records; raise as `load_dataset`."""
    dataset, division, label = request.dataset, request.division, request.label
    with decline_data_errors():
        schema = load_public_schema(request.folder / dataset.data_schema)
        if division is not None:
            division.check(schema)
    if label not in LABEL_READERS:  # a network learns classes if there are any
        label = "softmax" if schema.classes else "logistic"
    with decline_data_errors(schema_reason=Reason.MODEL):
        read_schema = schema if request.features is None else schema.unscaled
        records = read_records(request.source, read_schema, label, division=division)
    raw: NDArray[np.floating] = np.asarray(records.features)
    contents = "" if records.contents is None else str(records.contents)
    fingerprint = request.fingerprint or contents
    place = get_source_name(request.source)
    max_records = check_size(dataset, len(raw), place)
    if request.features is not None:
        # This names files of features. The key keeps a file's name from being a plain digest of
        # records.
        name = "\0".join([fingerprint, contents, *request.blocks]).encode()
        file_name = hashlib.blake2b(name, key=request.secret).hexdigest()
        memory = compute_memory_limit(schema.file.max_gib)

        def check(made: BoundFeatureMap) -> None:
            memory.check_records(max_records, features=made.width, path=place)
            taken = 1e3 * made.measure_record_seconds(schema.dimension)
            if taken > request.slowest_ms:
                expected = f"Expected a map of at most {request.slowest_ms:g} ms per record"
                remedy = "To allow it, raise feature-ms-at-most in party.toml."
                raise FeatureError(f"{expected}, got {taken:.3g} ms. {remedy}")

        folder = request.folder / "features"
        with decline_data_errors():
            raw = compute_features(request.features, schema, raw, file_name, folder, check)
    return LoadedDataset(
        rows=build_prepared_rows(raw, intercept=request.intercept),
        labels=records.labels,
        features=raw.shape[1],
        classes=schema.classes,
        fingerprint=fingerprint,
        schema=schema.digest,
        contents=contents,
        row_digests=records.row_digests,
        map="" if request.features is None else request.features.digest,
    )
