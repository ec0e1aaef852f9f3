"""Files that may be a stranger's, read: a regular file, whole, and no longer than it may be.

A run's folder, a job or a roster comes from elsewhere. What lies there under a file's name may be a
pipe that nobody writes to, a device, or a hundred gigabytes; each is an `OSError` before anything
of it is read, as a file that is missing is one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_text(Path(folder))
    Traceback (most recent call last):
    OSError: [Errno 22] expected a regular file: ...
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_TEXT_BYTES = 1 << 24
"""Bytes of a file that is read whole, and of a line."""
MAX_LOG_BYTES = 1 << 30
"""Bytes of a file that is read line by line."""
MAX_MODEL_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Bytes of a model: as many as this machine has memory for."""


def open_regular_file(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> io.BufferedReader:
    """The file at `path`, open to read.

    Raises:
        OSError: it is not there, no regular file, or longer than `max_bytes`.
    """
    # Without waiting for whoever writes into a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file", str(path))
        if found.st_size > max_bytes:
            said = f"expected at most {max_bytes} bytes, got {found.st_size}"
            raise OSError(errno.EFBIG, said, str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """What is in a file; see `open_regular_file`."""
    with open_regular_file(path, max_bytes=max_bytes) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:  # it grew, or its length is none (/proc)
        raise OSError(errno.EFBIG, f"expected at most {max_bytes} bytes, got more", str(path))
    return content


def read_text(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The same as text."""
    # Line ends as in a file that is opened as text.
    text = read_bytes(path, max_bytes=max_bytes).decode("utf-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file of at most `MAX_LOG_BYTES` bytes, without their ends.

    Raises:
        OSError: see `open_regular_file`; or a line is longer than `MAX_TEXT_BYTES`.
        UnicodeDecodeError: no UTF-8.
    """
    with open_regular_file(path, max_bytes=MAX_LOG_BYTES) as file:
        while line := file.readline(MAX_TEXT_BYTES + 1):
            if len(line) > MAX_TEXT_BYTES:
                said = f"expected lines of at most {MAX_TEXT_BYTES} bytes, got a longer one"
                raise OSError(errno.EFBIG, said, str(path))
            yield line.decode("utf-8").rstrip("\r\n")
