"""Compute a public map's features of records, or load them from a folder that keeps them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from parley.client.data.schema import Schema
from parley.client.features.base import BoundFeatureMap, FeatureMap

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows

_MAX_CACHED_FILES: Final = 4
"""Maximum files in a folder; the least recently used goes first."""


def compute_feature_key(*parts: str) -> str:
    """Return the digest of what determines the features: the file, the schema, the map."""
    return hashlib.sha256("\n".join(("parley/feature-cache/v1", *parts)).encode()).hexdigest()


def load_or_compute(
    folder: Path, key: str, compute: Callable[[], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Return `[N, q]` stored under `key` in a folder; otherwise compute and store them."""
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
    files = sorted(folder.glob("*.safetensors"), key=lambda f: f.stat().st_mtime)
    for old in files[:-_MAX_CACHED_FILES]:
        old.unlink(missing_ok=True)
    return features


def compute_features(
    features: FeatureMap,
    schema: Schema,
    cells: FeatureRows,
    fingerprint: str,
    folder: Path,
    check: Callable[[BoundFeatureMap], None],
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
