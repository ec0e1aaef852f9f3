"""What a party holds: one data set, read from its disk and ready to learn from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.refusals import Declined, Reason
from parley.client.data.class_indices import to_classes
from parley.client.data.party_block import PartyBlock
from parley.client.data.schema import Schema
from parley.client.models.linear_models import LinearModel
from parley.client.models.softmax_loss import SoftmaxLoss
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.ledger.block_composition import Blocks

if TYPE_CHECKING:
    from parley.client.data.block_selection import Division
    from parley.client.data.data_sources import SqlQuery
    from parley.client.data.query_party_block import RawPartyBlock
    from parley.client.features.base import FeatureMap
    from parley.client.party.dataset_config import DatasetConfig


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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DatasetRequest:
    """How a data set is read for a job; see `parley.client.party.dataset_loader.load_dataset`.

    Attributes:
        fingerprint: name of a file's data from their bytes; empty: rows are named by contents.
    """

    dataset: DatasetConfig
    folder: Path
    source: Path | SqlQuery
    fingerprint: str
    label: str
    intercept: bool
    features: FeatureMap | None
    slowest_ms: float
    secret: bytes
    blocks: Blocks
    division: Division | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
        app_block: the party as a block, if only its app reads the records.
    """

    rows: NDArray[np.floating]
    labels: NDArray[Any]
    features: int
    fingerprint: str
    schema: str
    classes: int = 0
    contents: str = ""
    row_digests: NDArray[np.uint64] | None = None
    map: str = ""
    blocks: Blocks = ()
    table: RawPartyBlock | None = None
    most_records: int = 0
    components: NDArray[np.float64] | None = None
    app_block: PartyBlock | None = None
    _squares: dict[tuple[int, int], NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def project_onto(self, components: NDArray[np.float64] | None) -> LoadedDataset:
        """Return the same data, to be projected on `[p, k]` components if there are any.

        Raises:
            Declined: model, if the components are of another number of features.
        """
        if components is None:
            return self
        if components.shape[0] != self.rows.shape[1]:
            expected = f"Expected components of {self.rows.shape[1]} features"
            raise Declined(Reason.MODEL, f"{expected}, got {components.shape[0]}.")
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
        if self.app_block is not None:
            return self.app_block
        model = algorithm.model
        if isinstance(model, LinearModel):
            labels = model.loss.to_nearest_labels(self.labels)
        elif self.classes:
            labels = SoftmaxLoss(classes=self.classes).to_nearest_labels(self.labels)
        else:
            labels = to_classes(self.labels, 0)[0]
        rows, squares = self.rows, self._squares
        if self.components is not None:
            project_rows = load_attribute("parley.client.algorithms.pca_projection:project_rows")
            rows, squares = project_rows(rows, self.components), {}
        offsets = np.array([0, len(labels)])
        return PartyBlock(features=rows, labels=labels, offsets=offsets, _squares=squares)
