"""Features that were computed once, kept on the disk of whoever holds the records.

A file is named by a digest of the records' file, the schema and the map: whatever changes any of
them is computed anew. It holds features of private records and is the owner's alone (mode 600).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

_KEPT: Final = 4
"""Files in a folder; the longest unused goes first."""


def feature_key(*parts: str) -> str:
    """The digest of what decides the features: of the file, of the schema, of the map."""
    return hashlib.sha256("\n".join(("parley/feature-cache/v1", *parts)).encode()).hexdigest()


def cached(
    folder: Path | None, key: str, compute: Callable[[], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """`[N, q]` what was kept under `key` in a folder, or what is computed, and then kept."""
    if folder is None:
        return compute()
    file = folder / f"{key}.safetensors"
    try:
        kept = load_file(file)["features"]
        os.utime(file)
        return np.asarray(kept, np.float32)
    except (OSError, SafetensorError, KeyError):
        pass  # none yet, or one that is damaged: it is made anew
    features = compute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{key}.part"
    draft.touch(mode=0o600)
    save_file({"features": features}, draft)
    os.replace(draft, file)
    for old in sorted(folder.glob("*.safetensors"), key=lambda f: f.stat().st_mtime)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return features
