"""Faults of data, schemas and maps, as a party's refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.client.contract.refusals import Declined, Reason
from parley.client.data.data_error import DataError, NoRecords
from parley.client.data.schema import SchemaError
from parley.client.features.feature_error import FeatureError
from parley.client.party.dataset_config import DatasetConfig


def check_size(dataset: DatasetConfig, records: int, path: str | Path) -> int:
    """Return the public bound on the number of records: the number itself, or the owner's bound.

    Raises:
        Declined: data-unreadable, if there are more.
    """
    max_records = dataset.private_size_bound or records
    if records > max_records:
        raise build_unreadable_error(path, f"expected at most most-records = {max_records} records")
    return max_records


@contextmanager
def decline_data_errors(schema_reason: Reason = Reason.DATA_UNREADABLE) -> Iterator[None]:
    """Convert faults of files, schemas and maps to the party's refusals."""
    try:
        yield
    except SchemaError as error:
        raise Declined(schema_reason, str(error)) from error
    except FeatureError as error:
        raise Declined(Reason.MODEL, str(error)) from error
    except NoRecords as error:
        raise Declined(Reason.TOO_FEW_RECORDS, error.log_message) from error
    except DataError as error:
        raise Declined(Reason.DATA_UNREADABLE, error.log_message) from error


def build_unreadable_error(path: str | Path, detail: str) -> Declined:
    """Return the refusal of data that cannot be read."""
    return Declined(Reason.DATA_UNREADABLE, f"{path}: {detail}")
