"""Define a simulation's data: read, drawn, split and prepared once, for many experiments.

The job's keys on data and parties determine the rows; its model determines what is learned from
them. So runs that differ in noise, budget or algorithm share rows, also across processes. Each
array is stored in its own file, which is mapped into memory and never written again. The folder
belongs to this program, is next to its runs, and must be protected as strictly as the data. It
stores its own name and the digests of its arrays. It is refused if another user could have written
to it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format
from numpy.typing import NDArray

from parley.client.data.party_block import PartyBlock
from parley.client.data.sparse_rows import FeatureRows
from parley.safe_io.file_writing import replace_file, write_file
from parley.safe_io.json_writing import format_json
from parley.server.jobs.job import Job

_ARRAYS = ("rows", "labels", "test_rows", "test_labels", "sizes", "row_digests")

FILES = (*(f"{name}.npy" for name in _ARRAYS), "facts.json")
"""Names of all files in a folder of prepared rows."""


@dataclass(frozen=True, kw_only=True)
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

    def save(self, folder: Path, *, name: str = "") -> None:
        """Write the data to a new folder, complete once `facts.json` exists.

        Args:
            name: future name of the folder; default: its current one.
        """
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # The folder contains records.
        facts = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(self).items()
            if key not in _ARRAYS
        }
        for each in _ARRAYS:
            with replace_file(folder / f"{each}.npy", mode=0o600) as file:
                np.save(file, getattr(self, each), allow_pickle=False)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            facts |= {"place": name or folder.name, "digests": _compute_digests(opened)}
        finally:
            os.close(opened)
        write_file(folder / "facts.json", format_json(facts), mode=0o600)

    @classmethod
    def load(cls, folder: Path, *, whole: bool = False) -> Self:
        """Load what `save` wrote, mapped into memory.

        Args:
            whole: whether every byte is compared with the digests.

        Raises:
            OSError, ValueError, KeyError, TypeError, AttributeError: parts are missing or changed,
                or another user may write to it.
        """
        # All files are opened through the checked folder, so that it cannot be exchanged in
        # between.
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _check_own(opened)
            return cls._load_from(opened, folder.name, whole=whole)
        except OSError as error:
            if error.filename:
                error.filename = str(folder / Path(error.filename).name)
            raise
        finally:
            os.close(opened)

    @classmethod
    def _load_from(cls, folder: int, name: str, *, whole: bool) -> Self:
        with _open_inside(folder, "facts.json") as file:
            facts = json.load(file)
        if (place := facts.pop("place")) != name:
            raise ValueError(f"they were stored as {place}, for other data")
        digests = facts.pop("digests")
        if whole and digests != (found := _compute_digests(folder)):
            changed = [f"{each}.npy" for each in _ARRAYS if digests.get(each) != found[each]]
            raise ValueError(f"{', '.join(changed)} changed since")
        arrays: dict[str, Any] = {each: _map_array(folder, each) for each in _ARRAYS}
        named = {each: tuple(facts[each]) for each in ("label_names", "party_names")}
        data = cls(**arrays, **{**facts, **named})
        counts = {len(data.rows), len(data.labels), int(data.sizes.sum())}
        if data.rows.ndim != 2 or len(counts) > 1 or int(data.sizes.min(initial=0)) < 0:
            raise ValueError("expected as many rows as labels, and as the parties hold; got others")
        return data

    def compute_digest(self, first: int, last: int) -> str:
        """Return a digest of the records of parties `first` to `last` − 1."""
        rows = slice(int(self.sizes[:first].sum()), int(self.sizes[:last].sum()))
        digest = hashlib.sha256()
        for each in (self.sizes[first:last], self.labels[rows], self.rows[rows]):
            digest.update(f"{each.dtype} {each.shape} ".encode())
            digest.update(np.ascontiguousarray(each).data)
        return digest.hexdigest()


def _open_inside(folder: int, name: str) -> BufferedReader:
    """Open a file in an open folder, to read."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)

    return open(name, "rb", opener=opener)


def _map_array(folder: int, name: str) -> NDArray[Any]:
    """Map an array from an open folder; raise ValueError if it is cut or has another form."""
    with _open_inside(folder, f"{name}.npy") as file:
        if format.read_magic(file) != (1, 0):
            raise ValueError(f"expected {name}.npy as it was written, got another version")
        shape, fortran, dtype = format.read_array_header_1_0(file)
        if fortran or dtype.hasobject:
            raise ValueError(f"expected {name}.npy as it was written, got {dtype}")
        if 0 in shape:  # There is nothing to map.
            return np.empty(shape, dtype)
        # Use a plain view: each slice of a memmap would be an object with a file name.
        return np.asarray(np.memmap(file, dtype, mode="r", offset=file.tell(), shape=shape))


def _compute_digests(folder: int) -> dict[str, str]:
    """Return the SHA-256 of every array's file."""

    def digest(name: str) -> str:
        with _open_inside(folder, f"{name}.npy") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(_ARRAYS, pool.map(digest, _ARRAYS), strict=True))


def _check_own(folder: int) -> None:
    """Refuse an open folder that another user owns or may write to, or that contains links."""
    found = {"the folder": os.stat(folder)}
    for name in os.listdir(folder):
        found[name] = os.stat(name, dir_fd=folder, follow_symlinks=False)
    for name, each in found.items():
        if each.st_uid != os.geteuid() or stat.S_ISLNK(each.st_mode):
            raise ValueError(f"{name} is a link, or user {each.st_uid}'s")
        if each.st_mode & 0o022:
            raise ValueError(f"others may write to {name}")


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
