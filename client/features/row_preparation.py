"""Prepare rows for learning from records: apply a public map, if any, and scale.

Each engine, party and prediction prepares rows here. Rows without a map are float64. Features are
float32, as their map returns them, and sums over them are float64
(`parley.client.models.linear_models`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from parley.client.data.record_chunks import compute_byte_ranges
from parley.client.data.schema import Schema
from parley.client.models.row_quantization import prepare_rows

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows
    from parley.client.features.base import BoundFeatureMap, FeatureMap

_MAX_CACHED_FILES: Final = 4
"""Maximum files in a folder; the least recently used goes first."""


def compute_feature_key(*parts: str) -> str:
    """Return the digest of what determines the features: the file, the schema, the map."""
    return hashlib.sha256("\n".join(("parley/feature-cache/v1", *parts)).encode()).hexdigest()


def load_or_compute(
    folder: Path | None, key: str, compute: Callable[[], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Return `[N, q]` stored under `key` in a folder; otherwise compute and store them."""
    if folder is None:
        return compute()
    file = folder / f"{key}.safetensors"
    try:
        kept = load_file(file)["features"]
        os.utime(file)
        return np.asarray(kept, np.float32)
    except (OSError, SafetensorError, KeyError):
        pass  # no file yet, or a damaged one: compute again
    features = compute()
    draft = folder / f".{key}.part"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600)
        save_file({"features": features}, draft)
        os.replace(draft, file)
    except (OSError, SafetensorError):  # a full disk: store nothing
        draft.unlink(missing_ok=True)
    for old in sorted(folder.glob("*.safetensors"), key=lambda f: f.stat().st_mtime)[
        :-_MAX_CACHED_FILES
    ]:
        old.unlink(missing_ok=True)
    return features


_COLUMNS = 2
"""Columns of all rows that are reordered at a time."""


def build_prepared_rows(
    raw: NDArray[np.floating[Any]],
    *,
    intercept: bool,
    order: NDArray[np.int64] | None = None,
    buffer: NDArray[np.floating[Any]] | None = None,
) -> NDArray[np.floating[Any]]:
    """Build `[n, p]` or `[n, p + 1]` rows of norm at most 1, in the precision of `raw` `[N, p]`.

    Args:
        order: `[n]` rows of `raw` to take, none twice; None: all.
        buffer: `[N, p + 1]` memory for the rows, with `raw` as its first columns, which is not read
            afterwards. It saves holding the rows twice.
    """
    if buffer is not None:
        return _prepare_in_place(buffer[:, : raw.shape[1] + intercept], raw, intercept, order)
    chosen = np.arange(len(raw)) if order is None else order
    rows = np.empty((len(chosen), raw.shape[1] + intercept), raw.dtype)
    for piece in starmap(slice, compute_byte_ranges(len(chosen), 8 * raw.shape[1])):
        rows[piece] = prepare_rows(raw[chosen[piece]], intercept=intercept)
    return rows


def _prepare_in_place(
    rows: NDArray[np.floating[Any]],
    raw: NDArray[np.floating[Any]],
    intercept: bool,
    order: NDArray[np.int64] | None,
) -> NDArray[np.floating[Any]]:
    for piece in starmap(slice, compute_byte_ranges(len(raw), 8 * raw.shape[1])):
        rows[piece] = prepare_rows(raw[piece], intercept=intercept)  # a new array
    if order is None:
        return rows
    for at in range(0, rows.shape[1], _COLUMNS):
        columns = slice(at, at + _COLUMNS)
        rows[: len(order), columns] = rows[order, columns]  # read completely before it is written
    return rows[: len(order)]


def compute_features(
    features: FeatureMap,
    schema: Schema,
    cells: FeatureRows,
    *,
    fingerprint: str,
    folder: Path | None = None,
    check: Callable[[BoundFeatureMap], None] = lambda made: None,
) -> NDArray[np.float32]:
    """Compute `[N, q]` features of `[N, p]` cells, read by `schema.unscaled`.

    Args:
        fingerprint: of the file and of what was read from it; names the features stored in
            `folder`.
        check: called with the map for this schema before any record is mapped; may raise.
    """
    made = features.bind(schema)
    check(made)
    key = compute_feature_key(fingerprint, schema.to_toml(), features.digest)
    found = load_or_compute(folder, key, lambda: made.compute(cells))
    if found.shape != (len(cells), made.width):
        found = made.compute(cells)
    return found
