"""Read untrusted files: only regular files, completely, and up to a maximum size.

A run's folder, a job or a roster comes from elsewhere. Under a file's name there may be a pipe
without a writer, a device, or a hundred gigabytes. Each of these raises `OSError` before any of it
is read, as a missing file does.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_text(Path(folder))
    Traceback (most recent call last):
    IsADirectoryError: [Errno 21] Is a directory: ...
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_TEXT_BYTES = 1 << 24
"""Maximum bytes of a file that is read at once, and of a line."""
MAX_LOG_BYTES = 1 << 30
"""Maximum bytes of a file that is read line by line."""
MAX_MODEL_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Maximum bytes of a model, which is this machine's memory."""


def open_regular_file(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> io.BufferedReader:
    """Open the regular file at `path` for reading.

    Raises:
        OSError: the file is missing, not regular, or longer than `max_bytes`.
    """
    # Non-blocking, so that a pipe without a writer does not hang this.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file", str(path))
        if found.st_size > max_bytes:
            said = f"expected at most {max_bytes} bytes, got {found.st_size}"
            raise OSError(errno.EFBIG, said, str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def list_files(folder: Path) -> list[tuple[bytes, Path]]:
    """Return the files of a folder by their relative names in bytes, sorted; links are followed."""
    return sorted(_walk(folder, b"", frozenset()))


def _walk(folder: Path, above: bytes, entered: frozenset[str]) -> Iterator[tuple[bytes, Path]]:
    if (real := os.path.realpath(folder)) in entered:  # a link to a folder around it
        return
    for file in folder.iterdir():
        name = above + os.fsencode(file.name)
        if file.is_dir():
            yield from _walk(file, name + b"/", entered | {real})
        elif file.is_file():
            yield name, file


def read_bytes(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the content of a file; see `open_regular_file`."""
    with open_regular_file(path, max_bytes=max_bytes) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:  # it grew, or reports no length (/proc)
        raise OSError(errno.EFBIG, f"expected at most {max_bytes} bytes, got more", str(path))
    return content


def read_text(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the content of a UTF-8 file as text; see `open_regular_file`."""
    # Convert line ends as Python does for text files. Some editors begin a file with a mark.
    text = decode_text(read_bytes(path, max_bytes=max_bytes), path).removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode_text(content: bytes, path: object) -> str:
    """Return the UTF-8 text in a file's bytes.

    Raises:
        OSError: they are not UTF-8. The error names the file, not the bytes.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), str(path)) from None


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file of at most `MAX_LOG_BYTES` bytes, without their ends.

    Raises:
        OSError: see `open_regular_file`; or a line is longer than `MAX_TEXT_BYTES`, or not UTF-8.
    """
    with open_regular_file(path, max_bytes=MAX_LOG_BYTES) as file:
        while line := file.readline(MAX_TEXT_BYTES + 1):
            if len(line) > MAX_TEXT_BYTES:
                said = f"expected lines of at most {MAX_TEXT_BYTES} bytes, got a longer one"
                raise OSError(errno.EFBIG, said, str(path))
            yield decode_text(line, path).rstrip("\r\n")
