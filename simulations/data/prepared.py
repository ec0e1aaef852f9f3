"""A simulation's data, read, drawn, split and prepared once, for many worlds.

What a job says of its data and parties decides the rows; its model decides what is learned from
them. So runs that differ in noise, budget or algorithm share them, also across processes: an array
lies in its own file, mapped into memory and never written to. Such a folder is this program's
own, beside its runs, and as closed as the data are.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.data.block import PartyBlock
from parley.server.jobs.job import Job
from parley.server.records.plain_json import json_text

__all__ = ["PreparedData", "data_key"]

_ARRAYS = ("rows", "labels", "test_rows", "test_labels", "sizes")


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """Rows of all parties, and what is known of them.

    Attributes:
        rows, labels: `[N, p]`, `[N]` party after party, prepared.
        test_rows, test_labels: held out before the split.
        sizes: `[B]` records of each party.
        classes: K of the schema; 0 where it lists none.
        fingerprint, contents: what a ledger knows the data by.
        schema: its text.
        schema_inferred: it was read off the records.
        label_names: of the labels, as the model counts them.
        features: the public map of every row; empty where there is none.
        party_names: where files or a column name them.
    """

    rows: NDArray[np.floating[Any]]
    labels: NDArray[np.generic]
    test_rows: NDArray[np.floating[Any]]
    test_labels: NDArray[np.generic]
    sizes: NDArray[np.int64]
    classes: int
    fingerprint: str
    contents: str
    schema: str
    schema_inferred: bool
    label_names: tuple[str, ...]
    features: Mapping[str, Any]
    party_names: tuple[str, ...] = ()

    def block(self, labels: NDArray[np.generic]) -> PartyBlock:
        """The parties' records, labels as a model takes them."""
        offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        return PartyBlock(features=self.rows, labels=labels, offsets=offsets)

    def save(self, folder: Path) -> None:
        """Writes it to a new folder, whole when `facts.json` is there."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # records
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
        facts = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if name not in _ARRAYS
        }
        (folder / "facts.json").write_text(json_text(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote, mapped into memory.

        Raises:
            OSError, ValueError, KeyError, TypeError, AttributeError: not all of it is there, or its
                arrays do not belong together.
        """
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        arrays: dict[str, Any] = {
            # A plain view: each slice of a memmap would be an object with a file's name.
            name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            for name in _ARRAYS
        }
        named = {name: tuple(facts[name]) for name in ("label_names", "party_names")}
        data = cls(**arrays, **{**facts, **named})
        counts = {len(data.rows), len(data.labels), int(data.sizes.sum())}
        if data.rows.ndim != 2 or len(counts) > 1 or int(data.sizes.min(initial=0)) < 0:
            raise ValueError("expected as many rows as labels, and as parties hold; got others")
        return data


def data_key(job: Job, *, contents: bool = False) -> str:
    """What decides the prepared rows of a job, as text: equal texts, equal rows.

    Args:
        job: whose.
        contents: whether a file is identified by the digest of its bytes; else by its name, size
            and time of change.
    """
    own = job.data.partition.rpartition(":")[0]
    given = (job.data.source, job.data.data_schema, job.data.test_source, job.data.test_schema)
    named = (*given, own)
    paths = sorted(path for name in named if name for path in glob.glob(name, recursive=True))
    return json_text(
        [
            [[path, *_identity(path, contents=contents)] for path in paths],
            job.data.model_dump(mode="json"),
            job.parties.model_dump(mode="json"),
            str(job.privacy.neighbouring),
            job.model.learns,
            [job.label_kind(0), job.label_kind(3)],
            job.model.has_intercept,
            job.model.feature_map,
        ]
    )


def _identity(path: str, *, contents: bool) -> list[int | str]:
    if contents:
        with open(path, "rb") as file:
            return [hashlib.file_digest(file, "sha256").hexdigest()]
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns]
