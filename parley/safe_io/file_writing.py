"""Write files into untrusted folders, and never follow a link.

A run folder, a session's or a party's can come from elsewhere. It may contain a link with the name
of a file to write, or of that file's draft. Such a link must not make the writer overwrite one of
the user's own files. So a draft has a random name and is created exclusively, which follows no
link. Then it replaces the file, which replaces a link itself. `append_to_file` appends only to a
regular file with one name. Each file is written completely or not at all: if the disk is full, the
old file stays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     own, link = Path(folder, "own"), Path(folder, "report.html")
    ...     write_file(own, "mine")
    ...     link.symlink_to(own)
    ...     write_file(link, "a page")
    ...     own.read_text(), link.read_text()
    ('mine', 'a page')
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_PUBLIC_MODE = 0o666  # restricted by the umask
_DRAFT = ".part"


@contextmanager
def replace_file(
    path: Path, *, mode: int = _PUBLIC_MODE, durable: bool = False
) -> Iterator[BinaryIO]:
    """Open a draft that replaces the file at `path` if the `with` block ends without an error.

    Args:
        mode: Permissions of a new file, restricted by the umask.
        durable: Whether to sync the content to the disk before the file gets its name.

    Raises:
        OSError: the folder cannot be written to, or the disk is full.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}{_DRAFT}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(draft, flags, mode)
    except OSError as error:  # name the file, not its draft
        error.filename = str(path)
        raise
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise


def is_draft(path: Path) -> bool:
    """Return whether a path has the name of a draft, which a killed process may leave."""
    return path.name.startswith(".") and path.suffix == _DRAFT


def write_file(
    path: Path, content: bytes | str, *, mode: int = _PUBLIC_MODE, durable: bool = False
) -> None:
    """Write a file completely or not at all; see `replace_file`. Text is written as UTF-8."""
    with replace_file(path, mode=mode, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def append_to_file(
    path: Path, content: bytes, *, mode: int = _PUBLIC_MODE, durable: bool = False
) -> None:
    """Append to a file, which is created if it is missing.

    Raises:
        OSError: `path` is a link, is not a regular file, or has a second name elsewhere.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    said = "expected a regular file of one name, got a link or a device"
    try:
        descriptor = os.open(path, flags, mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link; a pipe without a reader
            raise
        raise OSError(errno.EINVAL, said, str(path)) from None
    with os.fdopen(descriptor, "ab") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise OSError(errno.EINVAL, said, str(path))
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Create a folder inside another one, unless it exists and is not a link.

    Raises:
        OSError: `path` is something else, or cannot be created.
    """
    try:
        path.mkdir()
    except FileExistsError:
        if not stat.S_ISDIR(path.lstat().st_mode):
            said = "expected a folder, got a link or a file"
            raise OSError(errno.ENOTDIR, said, str(path)) from None


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, for their owner only.

    Their mode is 0700 for any umask. An existing folder does not change.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)


def is_own_folder(folder: Path) -> bool:
    """Return whether a folder looks like one that this user's own commands filled.

    It belongs to this user, can be written to, and holds no link, pipe or device.
    """
    try:
        own = folder.lstat()
        with os.scandir(folder) as entries:
            plain = all(
                entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
                for entry in entries
            )
    except OSError:
        return False
    return plain and own.st_uid == os.geteuid() and os.access(folder, os.W_OK)
