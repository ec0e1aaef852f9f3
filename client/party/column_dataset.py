"""A data set as raw columns, for queries."""

from __future__ import annotations

import numpy as np

from parley.client.contract.refusals import Declined, Reason
from parley.client.data.data_error import NoRecords
from parley.client.data.data_sources import get_source_name
from parley.client.data.query_party_block import (
    PersonIds,
    RawPartyBlock,
    limit_person_records,
    read_raw_party_block,
)
from parley.client.data.schema import Schema, load_public_schema
from parley.client.party.data_refusals import check_size, decline_data_errors
from parley.client.party.loaded_dataset import DatasetRequest, LoadedDataset


def load_column_dataset(request: DatasetRequest) -> LoadedDataset:
    """Read columns as they are, for queries."""
    dataset, division, place = request.dataset, request.division, get_source_name(request.source)
    if dataset.prepared:
        raise Declined(Reason.MODEL, "Expected raw columns for queries, got prepared rows.")
    with decline_data_errors():
        schema = load_public_schema(request.folder / dataset.data_schema)
        table = _read_bounded_table(request, schema)
        if division is not None and not table.records:
            raise NoRecords(division.read, path=place)
    check_size(dataset, table.records, place)
    return LoadedDataset(
        rows=np.empty((table.records, 0)),
        labels=np.empty(table.records),
        features=max(len(table.columns), 1),
        fingerprint=request.fingerprint or str(table.contents),
        schema=schema.digest,
        contents=str(table.contents),
        row_digests=table.row_digests,
        table=table,
    )


def _read_bounded_table(request: DatasetRequest, schema: Schema) -> RawPartyBlock:
    """Read raw columns; if persons are counted, with a bounded number of records per person."""
    sources, most = [request.source], request.dataset.records_per_id
    if most is None:
        return read_raw_party_block(sources, schema, division=request.division)
    persons = PersonIds(column=request.dataset.id, max_records=most, key=request.secret)
    return limit_person_records(read_raw_party_block(sources, schema, persons=persons), persons)
