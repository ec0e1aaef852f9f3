"""Read and write `model.safetensors`: tensors, their description, the statement, and a digest.

    digest = SHA-256(label ‖ JSON of the metadata ‖ for each tensor by name: JSON header ‖ bytes)

over the metadata without the digest, with sorted keys, and bytes in little-endian C order. Every
reader checks it, so that no change to the numbers, or to their privacy statement, goes unnoticed.
It is not a signature: a certificate states who wrote a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from parley.client.contract.strict_decoding import parse_strict_json
from parley.safe_io.file_reading import MAX_MODEL_BYTES
from parley.safe_io.file_reading import open_regular_file as opened_to_read
from parley.safe_io.os_errors import describe_cause

MODEL_VERSION = 2
"""Version of the description in a model file; raised if an older reader would misread it. Files of
version 1 had no digest.
"""

NON_PRIVATE = ("centralised", "aggregated")
"""How a model without privacy was learned: from all records in one place, or as a mean of optima.
"""

MODEL_FILE = "model.safetensors"
ARRAYS_FILE = "arrays.safetensors"
"""Next to it: the arrays of a model whose own code uses them, by name."""

_DIGEST = "parley.digest"
_DIGEST_LABEL = b"parley model file\n"
_DESCRIPTION_KEYS = {"version", "task", "label", "intercept", "schema"}

Tensors = Mapping[str, NDArray[Any]]


class ModelFileError(ValueError):
    """The file is not a Parley model, is damaged, or cannot predict."""


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A model file as it was written.

    Attributes:
        description: task, label, intercept, schema, and features if rows go through a map.
        statement: the privacy statement and the digest: the metadata with names that begin with
            "parley.".
    """

    file: Path
    description: Mapping[str, Any]
    tensors: Tensors
    statement: Mapping[str, str]


def encode_model(tensors: Tensors, metadata: Mapping[str, str]) -> bytes:
    """Return the content of a model file: tensors, metadata, and their digest."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    return save(contiguous, metadata={**metadata, _DIGEST: _compute_digest(contiguous, metadata)})


def open_model(path: str | Path) -> ModelFile:
    """Return the parts of a run's `model.safetensors`, or of that file; every reader calls it.

    Raises:
        ModelFileError: not a model of this version, or changed after it was written.
    """
    file = Path(path)
    if file.is_dir():
        file /= MODEL_FILE
    return _check_model(file, *_read_parts(file))


def load_tensors(path: str | Path) -> Tensors:
    """Return the tensors of any safetensors file, by name; those of a model file must be unchanged.

    Raises:
        ModelFileError: not a safetensors file, or a model that `open_model` refuses.
    """
    file = Path(path)
    tensors, metadata = _read_parts(file)
    return _check_model(file, tensors, metadata).tensors if "parley.model" in metadata else tensors


def _read_parts(file: Path) -> tuple[Tensors, dict[str, str]]:
    try:
        opened_to_read(
            file, max_bytes=MAX_MODEL_BYTES
        ).close()  # refuses a pipe, and a file too large for memory
        with safe_open(file, framework="np") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
            return tensors, dict(opened.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ModelFileError(
            f"No model found at {file}: {describe_cause(error)}. Give a run folder or a "
            "model.safetensors file."
        ) from error


def _check_model(file: Path, tensors: Tensors, metadata: Mapping[str, str]) -> ModelFile:
    described = _parse_description(file, metadata)
    said = {key: text for key, text in metadata.items() if key != _DIGEST}
    if (kept := metadata.get(_DIGEST)) != (came := _compute_digest(tensors, said)):
        raise ModelFileError(
            f"Expected {file} with its original content (SHA-256 {kept or 'missing'}), got "
            f"another ({came}): it was changed or damaged. Copy it again from the run's folder."
        )
    statement = {key: text for key, text in metadata.items() if key != "parley.model"}
    return ModelFile(file=file, description=described, tensors=tensors, statement=statement)


def _compute_digest(tensors: Tensors, metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(_DIGEST_LABEL + _encode_line(dict(metadata)))
    for name, array in sorted(tensors.items()):
        digest.update(_encode_line([name, array.dtype.name, list(array.shape)]))
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).data)
    return digest.hexdigest()


def _encode_line(value: Any) -> bytes:
    # JSON has no line break inside, so that the end of a part is unambiguous.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def _parse_description(file: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    if "parley.model" not in metadata:
        raise ModelFileError(
            f"Expected a model file that describes how rows are read, got {file} without: it is "
            "from Parley 0.1.0, or from another program. Run its job again."
        )
    try:
        described = parse_strict_json(metadata["parley.model"])
    except ValueError as error:
        raise ModelFileError(f"{file}: Expected JSON about the model. {error}") from error
    if not isinstance(described, dict) or described.get("version") != MODEL_VERSION:
        version = described.get("version") if isinstance(described, dict) else None
        raise ModelFileError(
            f"Expected a model file of version {MODEL_VERSION}, got {version!r} in {file}. Use "
            "the version of Parley that wrote it."
        )
    if set(described) - {"features"} != _DESCRIPTION_KEYS:
        raise ModelFileError(
            f"{file}: Expected keys {sorted(_DESCRIPTION_KEYS)}, got {sorted(described)}."
        )
    for key, kind in (("label", str), ("intercept", bool), ("schema", str)):
        if type(described[key]) is not kind:
            raise ModelFileError(
                f"{file}: Expected {key} as {kind.__name__}, got {described[key]!r:.40}."
            )
    return described
