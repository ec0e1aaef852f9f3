"""`LoadedDataset`: one of a party's data sets, read from disk and prepared as in every engine.

A raw file, or a database's rows, becomes `Records` by its schema, and those become prepared rows.
Each row is prepared independently of the others. A launcher's `.npz` contains prepared rows
already. Their norms are checked, because every sensitivity rests on them. Faults are `Declined` as
data-unreadable, or as model if the label has no such reading. The party's own log gets the cause,
without a cell's value.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parley.client.contract.refusals import Declined, Reason
from parley.client.data.label_reader_registry import LABEL_READERS
from parley.client.party.data_refusals import build_unreadable_error
from parley.client.party.dataset_config import APP_DATA, DatasetConfig
from parley.client.party.loaded_dataset import DatasetRequest, LoadedDataset
from parley.module_loading.plugin_table import PluginTable
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.block_composition import Blocks
from parley.safe_io.os_errors import describe_cause

if TYPE_CHECKING:
    from parley.client.features.base import FeatureMap

RAW_COLUMNS = "columns"
"""The label reading for queries: raw columns and no label."""

READERS = PluginTable[Callable[[DatasetRequest], LoadedDataset]](
    {
        "prepared": "parley.client.party.prepared_dataset:load_prepared_dataset",
        "records": "parley.client.party.record_dataset:load_record_dataset",
        "columns": "parley.client.party.column_dataset:load_column_dataset",
        "app": "parley.client.party.app_dataset:load_app_dataset",
    }
)
"""How a data set is read: rows prepared elsewhere, records by their schema, raw columns, or by an
app.
"""


def compute_file_fingerprint(path: Path) -> str:
    """Return a name of the data from their bytes.

    Another schema, model or use therefore starts no new budget.
    """
    try:
        with path.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise build_unreadable_error(path, describe_cause(error)) from error


def load_dataset(
    dataset: DatasetConfig,
    folder: Path,
    *,
    label: str,
    intercept: bool,
    features: FeatureMap | None = None,
    slowest_ms: float = math.inf,
    secret: bytes = b"checked",
    blocks: Blocks = (),
) -> LoadedDataset:
    """Load and prepare a data set.

    Args:
        label: logistic, softmax or ridge; network, for classes if the schema has any, else −1/+1;
            or app, for records that the party's own app reads.
        features: the public map that is applied to records, cached in `folder/features`.
        slowest_ms: maximum milliseconds of one core that the map may take per record.
        secret: the party's secret that chooses among a person's records and names files.
        blocks: blocks of the records that are read; none: all.

    Raises:
        Declined: data-unreadable; too-few-records, if the blocks contain none; unknown-dataset, if
            it has no blocks; model, if label or map do not suit the records.
    """
    if label not in (*LABEL_READERS, "network", RAW_COLUMNS, APP_DATA):
        raise Declined(Reason.MODEL, f"Expected a label of {', '.join(LABEL_READERS)}, network.")
    source, division = dataset.locate_records(folder), dataset.get_division(blocks)
    by_app, fingerprint = label == APP_DATA or bool(dataset.app_data), ""
    if isinstance(source, Path) and not by_app:  # Rows of a database are named by their contents.
        fingerprint = compute_file_fingerprint(source)
    request = DatasetRequest(
        dataset=dataset,
        folder=folder,
        source=source,
        fingerprint=fingerprint,
        label=label,
        intercept=intercept,
        features=features,
        slowest_ms=slowest_ms,
        secret=secret,
        blocks=blocks,
        division=division,
    )
    if by_app:
        kind = "app"
    elif label == RAW_COLUMNS:
        kind = RAW_COLUMNS
    elif dataset.unit is Unit.PERSON:
        raise Declined(Reason.UNIT, "Expected queries of a data set with unit = person, got a job.")
    else:
        kind = "prepared" if dataset.prepared else "records"
    most_records = dataset.private_size_bound
    return replace(READERS[kind](request), blocks=blocks, most_records=most_records)
