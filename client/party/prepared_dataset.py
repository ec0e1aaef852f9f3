"""A data set of rows that were prepared elsewhere: a launcher's .npz."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.feature_map_reference import compute_prepared_schema
from parley.client.data.data_error import DataError
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.multiset_digest import digest_rows
from parley.client.data.npz_arrays import read_arrays
from parley.client.models.row_quantization import quantize_rows
from parley.client.party.data_refusals import (
    build_unreadable_error,
    check_size,
    decline_data_errors,
)
from parley.client.party.loaded_dataset import DatasetRequest, LoadedDataset

_CHUNK_ROWS = 8192
"""Rows prepared at a time."""


def load_prepared_dataset(request: DatasetRequest) -> LoadedDataset:
    """Read rows that their owner prepared; raise as `load_dataset`."""
    dataset = request.dataset
    path = request.folder / dataset.prepared
    rows, labels = _read_prepared(path, np.float32 if dataset.map else np.float64)
    check_size(dataset, len(rows), path)
    contents = digest_rows(rows, labels)
    width = rows.shape[1] - request.intercept
    return LoadedDataset(
        rows=rows,
        labels=labels,
        features=width,
        classes=dataset.classes,
        fingerprint=request.fingerprint,
        schema=compute_prepared_schema(width, dataset.classes),
        contents=str(contents),
        row_digests=contents.digests,
        map=dataset.map,
    )


def _read_prepared(
    path: Path, precision: type[np.floating]
) -> tuple[NDArray[np.floating], NDArray[Any]]:
    def choose(names: list[str]) -> list[str]:
        if not {"features", "labels"} <= set(names):
            raise DataError("arrays `features` and `labels`", str(names), path=path)
        return ["features", "labels"]

    with decline_data_errors():
        arrays = read_arrays(path, choose, compute_memory_limit(math.inf))
    rows, labels = arrays["features"], arrays["labels"]
    has_shape = rows.ndim == 2 and labels.shape == rows.shape[:1] and rows.size > 0
    if not has_shape or rows.dtype != precision:
        expected = f"expected `features` [n, p] of {precision.__name__} and `labels` [n]"
        raise build_unreadable_error(path, expected)
    if labels.dtype.kind not in "if":
        raise build_unreadable_error(path, f"expected numbers as labels, got dtype {labels.dtype}")
    if len(missing := np.flatnonzero(~np.isfinite(labels))):
        row_numbers = ", ".join(str(row + 1) for row in missing[:10])
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        expected = f"expected finite numbers as labels; not so in rows {row_numbers}{more}"
        raise build_unreadable_error(path, expected)
    # A little above 1 by rounding, and no more.
    longest = 1 + (rows.shape[1] + 8) * 2.0**-52
    quantized = np.empty(rows.shape, precision)
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = np.asarray(rows[start : start + _CHUNK_ROWS], np.float64)
        if not (np.sqrt(np.vecdot(chunk, chunk)) <= longest).all():  # NaN is not
            raise build_unreadable_error(path, "expected finite rows of norm at most 1")
        quantized[start : start + _CHUNK_ROWS] = quantize_rows(chunk)
    return quantized, labels
