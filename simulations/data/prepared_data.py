"""Define a simulation's data: read, drawn, split and prepared once, for many experiments.

The job's keys on data and parties determine the rows; its model determines what is learned from
them. So runs that differ in noise, budget or algorithm share rows, also across processes
(`parley.simulations.data.memory_mapped_rows`).
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.party_block import PartyBlock
from parley.safe_io.json_writing import format_json
from parley.server.jobs.job import Job

if TYPE_CHECKING:
    from parley.client.data.sparse_rows import FeatureRows


@dataclass(frozen=True, kw_only=True, repr=False)
class PreparedData:
    """Rows of all parties, and the facts about them.

    Attributes:
        rows, labels: `[N, p]`, `[N]` party after party, prepared.
        classes: K of the schema; 0 if it lists none.
        fingerprint, contents: identify the data in a ledger.
        row_digests: `[K, 3]` digest of each row; empty for bundled data.
        label_names: of the labels, in the model's order.
        features: the public feature map of every row; empty without one.
        party_names: if files or a column name them.
    """

    rows: FeatureRows
    labels: NDArray[np.generic]
    test_rows: FeatureRows
    test_labels: NDArray[np.generic]
    sizes: NDArray[np.int64]
    classes: int
    fingerprint: str
    contents: str
    row_digests: NDArray[np.uint64]
    schema: str
    label_names: tuple[str, ...]
    features: Mapping[str, Any]
    party_names: tuple[str, ...] = ()

    def build_block(self, labels: NDArray[np.generic]) -> PartyBlock:
        """Build the parties' records, with labels as a model takes them."""
        offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        return PartyBlock(features=self.rows, labels=labels, offsets=offsets)

    def compute_digest(self, first: int, last: int) -> str:
        """Return a digest of the records of parties `first` to `last` − 1."""
        rows = slice(int(self.sizes[:first].sum()), int(self.sizes[:last].sum()))
        digest = hashlib.sha256()
        for each in (self.sizes[first:last], self.labels[rows], self.rows[rows]):
            digest.update(f"{each.dtype} {each.shape} ".encode())
            digest.update(np.ascontiguousarray(each).data)
        return digest.hexdigest()


def compute_data_key(job: Job, *, contents: bool = False) -> str:
    """Return a text that determines a job's prepared rows: equal texts mean equal rows.

    Args:
        contents: whether a file is identified by the digest of its bytes; else by its name, size
            and modification time.
    """
    named = [job.data.source, job.data.data_schema, job.data.test_source, job.data.test_schema]
    named += [glob.escape(table["path"]) for table in job.data.files]
    # Without files, the text is the one of earlier versions: their prepared rows are found again.
    left_out = None if job.data.files else {"files"}
    paths = sorted(path for name in named if name for path in glob.glob(name, recursive=True))
    return format_json(
        [
            [[path, *_identify_file(path, contents=contents)] for path in paths],
            job.data.model_dump(mode="json", exclude=left_out),
            job.parties.model_dump(mode="json"),
            str(job.privacy.neighbouring),
            job.model.learns,
            [job.label_kind(0), job.label_kind(3)],
            job.model.has_intercept,
            _get_map_key(job),
        ]
    )


def _get_map_key(job: Job) -> Any:
    """Return what determines the features: the map, or its rule's inputs except the records."""
    model = job.resolve_auto().model
    if not model.is_feature_map_open:
        return model.feature_map
    return [job.noise, job.privacy.model_dump(mode="json"), job.min_survivors, job.corrupt]


def _identify_file(path: str, *, contents: bool) -> list[int | str]:
    if contents:
        return [compute_file_digest(path)]
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns]


def compute_file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def get_cache_folder(job: Job) -> Path:
    """Return the folder in which runs of the job cache rows."""
    return Path(job.run.prepared or Path(job.run.out) / "prepared")
