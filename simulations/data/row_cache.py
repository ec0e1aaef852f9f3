"""Cache prepared rows: above a share of memory they are read from a file, through a memory map.

A cache folder has one subfolder per content, named by the SHA-256 of the files' bytes and of all
else that determines the rows. Runs and sweeps that name the same folder share them. Protect it as
strictly as the data: a user who can write to it could insert other records and have them charged to
another budget. So a subfolder is refused if another user owns it or may write to it. It is also
refused if its name or bytes differ from those it was given; all bytes are read once, at the start.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from parley.safe_io.file_writing import is_draft
from parley.safe_io.os_errors import describe_cause
from parley.server.jobs.external_references import MEMORY
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.simulations.data.memory_mapped_rows import FILES, load_prepared, save_prepared
from parley.simulations.data.prepared_data import PreparedData, compute_data_key, get_cache_folder

_ROWS = 5
"""Version; raise it if the same records give other rows, or are stored differently."""

_BEGUN = ".parley-rows-"
"""Name prefix of temporary folders. No other folder may have it, because they are removed."""


def get_cache_path(job: Job) -> Path:
    """Return the folder in which the job's rows are, or would be, cached."""
    key = f"{_ROWS} {compute_data_key(job, contents=True)}"
    return get_cache_folder(job) / hashlib.sha256(key.encode()).hexdigest()[:24]


def cache_rows_at(
    path: Path, prepare: Callable[[], PreparedData], is_unchanged: Callable[[], bool] | None = None
) -> PreparedData:
    """Load the rows cached at a path; prepare and store them first if they are missing.

    Args:
        is_unchanged: whether the files are the same as when the path was computed.

    Raises:
        JobError: no space, a folder of another user, or a damaged one.
    """
    if not os.path.lexists(path):
        data = prepare()
        if is_unchanged is not None and not is_unchanged():  # The rows would get other rows' name.
            raise JobError(
                "Expected the data files to stay the same while they are read, got others at "
                "the end. Nothing was stored. Run it again."
            )
        try:
            with _create_temporary_folder(path.parent) as begun:
                save_prepared(data, begun, name=path.name)
                try:
                    begun.replace(path)
                except OSError:  # Another process was faster.
                    if not (path / "facts.json").exists():
                        raise
        except OSError as error:
            raise JobError(
                f"Expected space to store the rows in {path}: {describe_cause(error)}"
            ) from error
    return load_cached(path)


def find_shared_path(job: Job) -> Path | None:
    """Return the folder in which runs and sweeps share the job's rows, or None.

    It is None if `run.prepared` names no folder, or if files and the job's text do not determine
    the rows.
    """
    return get_cache_path(job) if job.run.prepared and _is_determined_by_files(job) else None


def _is_determined_by_files(job: Job) -> bool:
    """Return whether files and text determine the rows.

    They do not with data in memory, a database, or code of your own.
    """
    named = "" if job.model.is_feature_map_open else str(job.model.feature_map.get("name", ""))
    return job.data.source not in MEMORY and not job.data.query and ":" not in named


def load_cached(path: Path) -> PreparedData:
    """Load what an earlier run stored."""
    try:
        return load_prepared(path, whole=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobError(
            f"Expected the rows that an earlier run of yours stored in {path}: "
            f"{describe_cause(error)}. Remove that folder, or name another in run.prepared, to "
            "prepare them again."
        ) from error


@contextmanager
def cache_data(
    job: Job, prepare: Callable[[], PreparedData]
) -> Iterator[tuple[Path, PreparedData]]:
    """Yield the job's rows and their folder, for processes that each map them.

    If files and the job's text do not determine the rows (data in memory or a database, code of
    your own, which may change under its name), they are in a temporary folder, which is removed at
    the end of the block.
    """
    with ExitStack() as stack:
        before, place = compute_data_key(job), get_cache_path(job)
        if not _is_determined_by_files(job):
            place = stack.enter_context(_create_temporary_folder(get_cache_folder(job))) / "rows"
        yield place, cache_rows_at(place, prepare, lambda: compute_data_key(job) == before)


@contextmanager
def _create_temporary_folder(parent: Path) -> Iterator[Path]:
    """Create a folder for the block; also remove those of processes that were killed."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{_BEGUN}*"):
        with _lock_folder(left) as ours:
            # Remove nothing else, even if it has such a name.
            if ours and all(map(_is_of_rows, left.rglob("*"))):
                shutil.rmtree(left, ignore_errors=True)
    while True:
        own = Path(tempfile.mkdtemp(prefix=_BEGUN, dir=parent))
        with _lock_folder(own, wait=True):
            # Before the lock was taken, another process removed it as a leftover.
            if not own.is_dir():
                continue
            try:
                yield own
            finally:
                shutil.rmtree(own, ignore_errors=True)
            return


@contextmanager
def _lock_folder(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Yield whether no other process holds the folder; this process does within the block.

    A lock ends with its process, however that ends. On a file system without locks the result is
    False.
    """
    with ExitStack() as stack:
        ours = False
        with suppress(OSError):  # Another process holds it, or it was removed meanwhile.
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = True
        yield ours


def _is_of_rows(path: Path) -> bool:
    """Return whether a file or folder contains prepared rows, or is a draft of one."""
    return path.name in {"rows", *FILES} or is_draft(path)
