"""Prepared rows that are kept: read from a file, through a memory map, beyond a share of memory.

A folder holds one place for each content: named by the SHA-256 of the files' bytes and of all else
that decides the rows. Runs and sweeps that name the same folder share what lies there. It is as
closed as the data are: whoever can write to it can put other records in their place, and have them
charged to another budget. So a place that another user owns, or may write to, is refused, and so is
one that has another name or other bytes than it was given: all of them are read once, at the start.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from parley.client.data.party_block import PartyBlock
from parley.client.data.record_chunks import CHUNK_BYTES
from parley.safe_io.file_writing import is_draft
from parley.safe_io.os_errors import describe_cause
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.prepared_data import FILES, PreparedData, compute_data_key
from parley.simulations.data.public_shape import MIB, get_memory_limit_mib
from parley.simulations.data.record_reading import MEMORY

_ROWS = 5
"""To be raised when the same records become other rows, or are kept otherwise."""

_BEGUN = ".parley-rows-"
"""Begins the name of a folder that is not kept: no other folder's, for those are removed."""


def compute_data_mib(block: PartyBlock) -> float:
    """MiB of the parties' records."""
    return (block.features.nbytes + block.labels.nbytes) / MIB


def get_peak_mib() -> float:
    """MiB that this process held at most, mapped files among them.

    Linux counts into `ru_maxrss` what the process held that started this one; VmHWM is our own.
    """
    return _read_status_mib("VmHWM:")


def get_current_mib() -> float:
    """MiB that this process holds now; at most, where the machine says no more."""
    return _read_status_mib("VmRSS:")


def _read_status_mib(key: str) -> float:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def get_cache_path(job: Job) -> Path:
    """Where the job's rows are kept, if they are."""
    key = f"{_ROWS} {compute_data_key(job, contents=True)}"
    return _get_cache_folder(job) / hashlib.sha256(key.encode()).hexdigest()[:24]


def _get_cache_folder(job: Job) -> Path:
    return Path(job.run.prepared or Path(job.run.out) / "prepared")


def load_cached_data(job: Job, prepare: Callable[[], PreparedData]) -> PreparedData:
    """The job's rows, from a file where they are kept.

    Raises:
        JobError: there is no room to keep them.
    """
    before = compute_data_key(job)
    place = get_cache_path(job) if _get_cache_folder(job).is_dir() else None
    if place is not None and os.path.lexists(place):
        return _load_cached(place)
    data = prepare()
    if not job.run.prepared and data.rows.nbytes <= get_memory_limit_mib(job) * MIB:
        return data
    return cache_rows_at(
        place or get_cache_path(job), lambda: data, lambda: compute_data_key(job) == before
    )


def cache_rows_at(
    path: Path, prepare: Callable[[], PreparedData], is_unchanged: Callable[[], bool] | None = None
) -> PreparedData:
    """The rows that are kept in a place, prepared first where nobody did.

    Args:
        is_unchanged: whether that is what it was when the place was named.

    Raises:
        JobError: no room, a place of somebody else's, or one that is damaged.
    """
    if not os.path.lexists(path):
        data = prepare()
        if is_unchanged is not None and not is_unchanged():  # the rows would have others' name
            raise JobError(
                "Expected the files of the data to stay as they are while they are read, got "
                "others at the end. Nothing was kept: run it again."
            )
        try:
            with _create_temporary_folder(path.parent) as begun:
                data.save(begun, name=path.name)
                try:
                    begun.replace(path)
                except OSError:  # who comes first wins
                    if not (path / "facts.json").exists():
                        raise
        except OSError as error:
            raise JobError(
                f"Expected room to keep the rows in {path}: {describe_cause(error)}"
            ) from error
    return _load_cached(path)


def find_shared_path(job: Job) -> Path | None:
    """Where runs and sweeps share the job's rows; None where `run.prepared` names no folder.

    Nor do they share rows that their files and the job's text do not tell.
    """
    return get_cache_path(job) if job.run.prepared and _is_determined_by_files(job) else None


def _is_determined_by_files(job: Job) -> bool:
    """Whether files and text tell the rows: no data in memory or a database, no code of yours."""
    named = "" if job.model.is_feature_map_open else str(job.model.feature_map.get("name", ""))
    return job.data.source not in MEMORY and not job.data.query and ":" not in named


def _load_cached(path: Path) -> PreparedData:
    """What an earlier run kept."""
    try:
        return PreparedData.load(path, whole=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobError(
            f"Expected the rows that an earlier run of yours kept in {path}: "
            f"{describe_cause(error)}. Remove that folder, or name another in "
            "run.prepared, and they are prepared again."
        ) from error


@contextmanager
def cache_data(
    job: Job, prepare: Callable[[], PreparedData]
) -> Iterator[tuple[Path, PreparedData]]:
    """The job's rows and where they are kept: for processes that map them, each its own.

    Rows that their files and the job's text do not tell (data in memory or a database, code of your
    own, which may change under its name) are in a place of their own, which ends with the block.
    """
    with ExitStack() as stack:
        before, place = compute_data_key(job), get_cache_path(job)
        if not _is_determined_by_files(job):
            place = stack.enter_context(_create_temporary_folder(_get_cache_folder(job))) / "rows"
        yield place, cache_rows_at(place, prepare, lambda: compute_data_key(job) == before)


@contextmanager
def _create_temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder that ends with the block; those of processes that were killed are removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{_BEGUN}*"):
        with _lock_folder(left) as ours:
            # Nothing else is removed, whoever gave it such a name.
            if ours and all(map(_is_of_rows, left.rglob("*"))):
                shutil.rmtree(left, ignore_errors=True)
    while True:
        own = Path(tempfile.mkdtemp(prefix=_BEGUN, dir=parent))
        with _lock_folder(own, wait=True):
            if not own.is_dir():  # before it was held, another process took it for one that is left
                continue
            try:
                yield own
            finally:
                shutil.rmtree(own, ignore_errors=True)
            return


@contextmanager
def _lock_folder(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether no other process holds the folder; this one does within the block.

    A lock ends with its process, however that ends. Where a file system has none, it is never ours.
    """
    with ExitStack() as stack:
        ours = False
        with suppress(OSError):  # held, or ended meanwhile
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = True
        yield ours


def check_memory(job: Job, block: PartyBlock) -> None:
    """Refuses a limit that the records worked on at once don't fit: a party's, or a core's share.

    Raises:
        JobError: with the limit that does.
    """
    record = block.features.itemsize * block.features.shape[1]
    least = max(int(block.sizes.max()) * record, min(CHUNK_BYTES, block.features.nbytes))
    needed = -(-least // MIB)
    if needed > get_memory_limit_mib(job):
        raise JobError(
            f"Expected run.memory of at least {needed} MiB, for the records that are worked on at "
            f"once (the largest party holds {block.sizes.max()}), got {get_memory_limit_mib(job)} "
            "MiB."
        )


def _is_of_rows(path: Path) -> bool:
    """Return whether a file or folder is one that prepared rows are kept in, or a draft of one."""
    return path.name in {"rows", *FILES} or is_draft(path)
