"""A data set as raw columns, for queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from parley.client.contract.party_messages import Declined, Reason
from parley.client.data.budget_blocks import Division
from parley.client.data.data_error import NoRecords
from parley.client.data.data_sources import Source, get_source_name
from parley.client.data.raw_party_block import (
    PersonIds,
    RawPartyBlock,
    limit_person_records,
    read_raw_party_block,
)
from parley.client.data.schema import Schema, load_public_schema
from parley.client.party.data_refusals import (
    check_size,
    decline_data_errors,
)
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.loaded_dataset import LoadedDataset


def load_column_dataset(
    dataset: DatasetConfig,
    folder: Path,
    source: Source,
    fingerprint: str,
    secret: bytes,
    division: Division | None,
) -> LoadedDataset:
    """Columns as they are, for queries."""
    if dataset.prepared:
        raise Declined(Reason.MODEL, "Expected raw columns for queries, got prepared rows.")
    with decline_data_errors():
        schema = load_public_schema(folder / dataset.data_schema)
        table = _read_bounded_table(source, schema, dataset, secret, division)
        if division is not None and not table.records:
            raise NoRecords(division.read, path=get_source_name(source))
    check_size(dataset, table.records, get_source_name(source))
    return LoadedDataset(
        rows=np.empty((table.records, 0)),
        labels=np.empty(table.records),
        features=max(len(table.columns), 1),
        classes=0,
        fingerprint=fingerprint or str(table.contents),
        schema=schema.digest,
        contents=str(table.contents),
        row_digests=table.row_digests,
        table=table,
        most_records=dataset.private_size_bound,
    )


def _read_bounded_table(
    source: Source, schema: Schema, dataset: DatasetConfig, secret: bytes, division: Division | None
) -> RawPartyBlock:
    """Read raw columns; if persons are counted, with a bounded number of records per person."""
    if dataset.records_per_id is None:
        return read_raw_party_block([source], schema, division=division)
    persons = PersonIds(column=dataset.id, max_records=dataset.records_per_id, key=secret)
    return limit_person_records(read_raw_party_block([source], schema, persons=persons), persons)
