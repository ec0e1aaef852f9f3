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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.second_moments import project_rows
from parley.client.contract.feature_map import compute_prepared_schema
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.data.binary_files import read_arrays
from parley.client.data.budget_blocks import Division, NoRecords
from parley.client.data.cell_parsing import LABEL_READERS
from parley.client.data.content_digest import digest_rows, get_row_digests
from parley.client.data.data_sources import Source, get_source_name
from parley.client.data.memory_limit import compute_memory_limit
from parley.client.data.party_block import PartyBlock
from parley.client.data.raw_party_block import (
    PersonIds,
    RawPartyBlock,
    limit_person_records,
    read_raw_party_block,
)
from parley.client.data.raw_table import DataError
from parley.client.data.records import read_records, to_classes
from parley.client.data.schema import Schema, SchemaError, load_public_schema
from parley.client.features.base import BoundFeatureMap, FeatureError, FeatureMap
from parley.client.features.row_preparation import build_prepared_rows, compute_features
from parley.client.models.linear_losses import SoftmaxLoss
from parley.client.models.linear_models import LinearModel
from parley.client.models.row_quantization import quantize_rows
from parley.client.party.dataset_config import DatasetConfig
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.block_composition import Blocks
from parley.safe_io.os_errors import describe_cause

RAW_COLUMNS = "columns"
"""The label reading for queries: raw columns and no label."""

_CHUNK_ROWS = 8192
"""Rows prepared at a time."""


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """The public facts about a data set.

    Only these may be disclosed, and a refusal may depend only on these.

    Attributes:
        classes: K, or 0 for −1/+1 and for targets.
        records: n; None if it is private.
        max_records: upper bound on n: n itself, or a number that the owner sets.
    """

    features: int
    width: int
    classes: int
    records: int | None
    max_records: int
    schema: str
    map: str
    columns: Schema | None


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedDataset:
    """One data set of the party, ready to learn from.

    Attributes:
        rows: `[n, p]` prepared, including the intercept's column.
        labels: `[n]` as the label's reading returns them.
        classes: K, or 0 for −1/+1 and for targets.
        fingerprint: `sha256:` and the digest of the file; for a database's rows, `contents`.
        schema: digest of what columns and label mean, the same at every party of a run. For rows
            prepared elsewhere: digest of their numbers of features and classes.
        contents, row_digests: the digest of its rows, independent of their format, and `[n, 3]`
            digests of each row of the file, read or not, and of each person if persons are counted.
        map: digest of the public map that computed its rows' features; empty: none.
        blocks: blocks of the file that were read; none: all.
        table: its raw columns instead of rows, for queries.
        most_records: upper bound on a private n; 0: n is public.
        components: `[p, k]` components that rows are projected on before learning; None: none.
    """

    rows: NDArray[np.floating]
    labels: NDArray[Any]
    features: int
    classes: int
    fingerprint: str
    schema: str
    contents: str = ""
    row_digests: NDArray[np.uint64] | None = None
    map: str = ""
    blocks: Blocks = ()
    table: RawPartyBlock | None = None
    most_records: int = 0
    components: NDArray[np.float64] | None = None

    def project_onto(self, components: NDArray[np.float64] | None) -> LoadedDataset:
        """Return the same data, to be projected on `[p, k]` components if there are any.

        Raises:
            Declined: model, if the components are of another number of features.
        """
        if components is None:
            return self
        if components.shape[0] != self.rows.shape[1]:
            raise Declined(
                Reason.MODEL,
                f"Expected components of {self.rows.shape[1]} features, got {components.shape[0]}.",
            )
        return replace(self, components=components)

    @property
    def facts(self) -> DatasetFacts:
        """Its public facts."""
        return DatasetFacts(
            features=self.features,
            width=(self.rows if self.components is None else self.components).shape[1],
            classes=self.classes,
            records=None if self.most_records else len(self.labels),
            max_records=self.most_records or len(self.labels),
            schema=self.schema,
            map=self.map,
            columns=None if self.table is None else self.table.schema,
        )

    def to_block(self, algorithm: FederatedAlgorithm) -> Any:
        """Return the party as a block of one, with labels in the form of the algorithm's model.

        A label outside the model's domain becomes the nearest label inside it. If it were refused
        instead, a refusal or a log line would depend on one record, under a model that a server
        named.
        """
        if self.table is not None:
            return self.table
        model = algorithm.model
        if isinstance(model, LinearModel):
            labels = model.loss.to_nearest_labels(self.labels)
        elif self.classes:
            labels = SoftmaxLoss(classes=self.classes).to_nearest_labels(self.labels)
        else:
            labels = to_classes(self.labels, 0)[0]
        rows = self.rows if self.components is None else project_rows(self.rows, self.components)
        return PartyBlock(features=rows, labels=labels, offsets=np.array([0, len(labels)]))


def compute_file_fingerprint(path: Path) -> str:
    """Return a name of the data from their bytes.

    Another schema, model or use therefore starts no new budget.
    """
    try:
        with path.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _build_unreadable_error(path, describe_cause(error)) from error


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
        label: logistic, softmax or ridge; or network, for classes if the schema has any, else
            −1/+1.
        features: the public map that is applied to records, cached in `folder/features`.
        slowest_ms: maximum milliseconds of one core that the map may take per record.
        secret: the party's secret that chooses among a person's records and names files.
        blocks: blocks of the records that are read; none: all.

    Raises:
        Declined: data-unreadable; too-few-records, if the blocks contain none; unknown-dataset, if
            it has no blocks; model, if label or map do not suit the records.
    """
    if label not in (*LABEL_READERS, "network", RAW_COLUMNS):
        raise Declined(Reason.MODEL, f"Expected a label of {', '.join(LABEL_READERS)}, network.")
    source, division = dataset.locate_records(folder), dataset.get_division(blocks)
    # Rows of a database are named by their contents.
    fingerprint = compute_file_fingerprint(source) if isinstance(source, Path) else ""
    if label == RAW_COLUMNS:
        return replace(
            _load_raw(dataset, folder, source, fingerprint, secret, division), blocks=blocks
        )
    if dataset.unit is Unit.PERSON:
        raise Declined(Reason.UNIT, "Expected queries of a data set with unit = person, got a job.")
    if dataset.prepared and isinstance(source, Path):
        return _load_prepared(dataset, source, fingerprint, intercept=intercept)
    with _decline_data_errors():
        schema = load_public_schema(folder / dataset.data_schema)
        if division is not None:
            division.check(schema)
    if label not in LABEL_READERS:  # a network learns classes if there are any
        label = "softmax" if schema.classes else "logistic"
    with _decline_data_errors(schema_reason=Reason.MODEL):
        read_schema = schema if features is None else schema.unscaled
        records = read_records(source, read_schema, label, division=division)
    raw: NDArray[np.floating] = records.features
    contents = "" if records.contents is None else str(records.contents)
    fingerprint = fingerprint or contents
    max_records = _check_size(dataset, len(raw), get_source_name(source))
    if features is not None:
        raw = _compute_features(
            records.features,
            features,
            schema,
            get_source_name(source),
            folder=folder,
            max_ms=slowest_ms,
            max_records=max_records,
            # This names files of features. The key keeps a file's name from being a plain digest of
            # records.
            fingerprint=hashlib.blake2b(
                "\0".join([fingerprint, contents, *blocks]).encode(), key=secret
            ).hexdigest(),
        )
    return LoadedDataset(
        rows=build_prepared_rows(raw, intercept=intercept),
        labels=records.labels,
        features=raw.shape[1],
        classes=schema.classes,
        fingerprint=fingerprint,
        schema=schema.digest,
        contents=contents,
        row_digests=get_row_digests(records.contents),
        map="" if features is None else features.digest,
        blocks=blocks,
        most_records=dataset.private_size_bound,
    )


def _load_prepared(
    dataset: DatasetConfig, path: Path, fingerprint: str, *, intercept: bool
) -> LoadedDataset:
    """Load rows that their owner prepared. It raises the errors of `load_dataset`."""
    rows, labels = _read_prepared(path, np.float32 if dataset.map else np.float64)
    _check_size(dataset, len(rows), path)
    contents = digest_rows(rows, labels)
    width = rows.shape[1] - intercept
    return LoadedDataset(
        rows=rows,
        labels=labels,
        features=width,
        classes=dataset.classes,
        fingerprint=fingerprint,
        schema=compute_prepared_schema(width, dataset.classes),
        contents=str(contents),
        row_digests=contents.digests,
        map=dataset.map,
        most_records=dataset.private_size_bound,
    )


def _check_size(dataset: DatasetConfig, records: int, path: str | Path) -> int:
    """Return the public bound on the number of records: the number itself, or the owner's bound.

    Raises:
        Declined: data-unreadable, if there are more.
    """
    max_records = dataset.private_size_bound or records
    if records > max_records:
        raise _build_unreadable_error(
            path, f"expected at most most-records = {max_records} records"
        )
    return max_records


def _compute_features(
    cells: NDArray[np.float64],
    features: FeatureMap,
    schema: Schema,
    path: str | Path,
    *,
    folder: Path,
    max_ms: float,
    max_records: int,
    fingerprint: str,
) -> NDArray[np.float32]:
    """Return `[N, q]` features of `[N, p]` cells. It raises the errors of `load_dataset`.

    Args:
        max_records: public upper bound on N.
    """
    memory = compute_memory_limit(schema.file.max_gib)

    def check(made: BoundFeatureMap) -> None:
        memory.check_records(max_records, features=made.width, path=path)
        taken = 1e3 * made.measure_record_seconds(schema.dimension)
        if taken > max_ms:
            raise FeatureError(
                f"Expected a map of at most {max_ms:g} ms a record, got {taken:.3g} ms: "
                "feature-ms-at-most of party.toml allows more."
            )

    with _decline_data_errors():
        return compute_features(
            features,
            schema,
            cells,
            fingerprint=fingerprint,
            folder=folder / "features",
            check=check,
        )


def _load_raw(
    dataset: DatasetConfig,
    folder: Path,
    source: Source,
    fingerprint: str,
    secret: bytes,
    division: Division | None,
) -> LoadedDataset:
    """Load raw columns, for queries."""
    if dataset.prepared:
        raise Declined(Reason.MODEL, "Expected raw columns for queries, got prepared rows.")
    with _decline_data_errors():
        schema = load_public_schema(folder / dataset.data_schema)
        table = _read_bounded_table(source, schema, dataset, secret, division)
        if division is not None and not table.records:
            raise NoRecords(division.read, path=get_source_name(source))
    _check_size(dataset, table.records, get_source_name(source))
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


def _read_prepared(
    path: Path, precision: type[np.floating]
) -> tuple[NDArray[np.floating], NDArray[Any]]:
    def choose(names: list[str]) -> list[str]:
        if not {"features", "labels"} <= set(names):
            raise DataError("arrays `features` and `labels`", str(names), path=path)
        return ["features", "labels"]

    with _decline_data_errors():
        arrays = read_arrays(path, choose, compute_memory_limit(math.inf))
    rows, labels = arrays["features"], arrays["labels"]
    has_shape = rows.ndim == 2 and labels.shape == rows.shape[:1] and rows.size > 0
    if not has_shape or rows.dtype != precision:
        expected = f"expected `features` [n, p] of {precision.__name__} and `labels` [n]"
        raise _build_unreadable_error(path, expected)
    if labels.dtype.kind not in "if":
        raise _build_unreadable_error(path, f"expected numbers as labels, got dtype {labels.dtype}")
    if len(missing := np.flatnonzero(~np.isfinite(labels))):
        row_numbers = ", ".join(str(row + 1) for row in missing[:10])
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise _build_unreadable_error(
            path, f"expected finite numbers as labels; not so in rows {row_numbers}{more}"
        )
    # Rounding may put a norm slightly above 1, but no more than this.
    longest = 1 + (rows.shape[1] + 8) * 2.0**-52
    quantized = np.empty(rows.shape, precision)
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = np.asarray(rows[start : start + _CHUNK_ROWS], np.float64)
        if not (np.sqrt(np.vecdot(chunk, chunk)) <= longest).all():  # NaN is not
            raise _build_unreadable_error(path, "expected finite rows of norm at most 1")
        quantized[start : start + _CHUNK_ROWS] = quantize_rows(chunk)
    return quantized, labels


@contextmanager
def _decline_data_errors(schema_reason: Reason = Reason.DATA_UNREADABLE) -> Iterator[None]:
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


def _build_unreadable_error(path: str | Path, detail: str) -> Declined:
    return Declined(Reason.DATA_UNREADABLE, f"{path}: {detail}")
