"""A data set that the party's own app reads: its place, and a digest of its bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from parley.client.contract.refusals import Declined, Reason
from parley.client.data.app_data_block import AppDataBlock
from parley.client.party.data_refusals import build_unreadable_error
from parley.client.party.dataset_config import APP_DATA, APP_KNOWS
from parley.client.party.loaded_dataset import DatasetRequest, LoadedDataset
from parley.safe_io.file_reading import list_files
from parley.safe_io.os_errors import describe_cause

_SCHEMA = hashlib.sha256(b"parley/app-data/v1").hexdigest()
"""In place of a schema's digest: no column is agreed on."""


def load_app_dataset(request: DatasetRequest) -> LoadedDataset:
    """Return where an app's records are, and their digest; Parley reads no record.

    Raises:
        Declined: data-unreadable, also for a job whose records Parley would read.
    """
    dataset = request.dataset
    if request.label != APP_DATA:
        expected = "Expected path, source or prepared for this job"
        got = "app-data, which only the party's own app reads"
        raise Declined(Reason.DATA_UNREADABLE, f"{expected}, got {got}.")
    if not dataset.app_data:
        raise Declined(
            Reason.DATA_UNREADABLE,
            "Expected app-data in the data set's section of party.toml, which a job with your own "
            "app needs, got none.",
        )
    path = request.folder / dataset.app_data
    known = dataset.app_data == APP_KNOWS
    fingerprint = f"app-data:{APP_KNOWS}" if known else f"sha256:{_compute_digest(path)}"
    return LoadedDataset(
        rows=np.zeros((1, 1)),
        labels=np.zeros(1, np.int64),
        features=1,
        fingerprint=fingerprint,
        schema=_SCHEMA,
        contents="" if known else fingerprint,
        app_block=AppDataBlock.create(1, {} if known else {0: str(path.resolve())}),
    )


def _compute_digest(path: Path) -> str:
    """Return a digest of a file, or of all files of a folder with their relative names."""
    try:
        if not path.is_dir():
            return _compute_file_digest(path)
        whole = hashlib.sha256(b"parley/app-data/folder/v1")
        for name, file in list_files(path):
            whole.update(name + b"\0" + _compute_file_digest(file).encode())
        return whole.hexdigest()
    except OSError as error:
        raise build_unreadable_error(path, describe_cause(error)) from error


def _compute_file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
