"""Describe errors of the operating system: what is wrong, where, and what to do.

`OSError` prints as "[Errno 28] No space left on device". All messages of Parley use the texts of
this module instead.

    >>> describe_error(FileNotFoundError(2, "No such file or directory", "rows.csv"))
    'rows.csv: no such file or folder. Check the path.'
    >>> describe_cause(OSError(28, "No space left on device"))
    'the disk is full'
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

_WRITE = "Choose another folder, or ask its owner to give this user access."
_SPACE = "Free some space, then start again; a run that began continues with --resume RUN."
_NETWORK = "Check the address, and that the other side is running."

_WORDS = {
    errno.ENOENT: ("no such file or folder", "Check the path."),
    errno.ENOTDIR: ("a part of this path is a file, not a folder", "Check the path."),
    errno.EISDIR: ("a folder, expected a file", "Check the path."),
    errno.EEXIST: ("it exists already", "Choose another name."),
    errno.ENAMETOOLONG: ("a name in this path is too long", "Choose a shorter one."),
    errno.ELOOP: ("a link that is not allowed here, or links in a circle", "Remove the link."),
    errno.EACCES: ("this user has no permission", _WRITE),
    errno.EPERM: ("this user has no permission", _WRITE),
    errno.EROFS: ("its disk is read-only", "Choose a folder on another disk."),
    errno.ENOSPC: ("the disk is full", _SPACE),
    errno.EDQUOT: ("this user's disk quota is used up", _SPACE),
    errno.EILSEQ: ("not text in UTF-8", "Save it as UTF-8, or restore it from a copy."),
    errno.EIO: ("the disk failed", "Check the disk (the system's log has more)."),
    errno.EMFILE: ("this process has too many files open", "Raise its limit: ulimit -n 4096."),
    errno.ENFILE: (
        "this machine has too many files open",
        "Stop the processes that hold them, then try again.",
    ),
    errno.ENOMEM: ("this machine has no memory left", "Free memory, then try again."),
    errno.EADDRINUSE: ("another process uses that port", "Choose another port."),
    errno.EADDRNOTAVAIL: ("not an address of this machine", "Choose another address."),
    errno.ECONNREFUSED: ("no process listens there", _NETWORK),
    errno.ECONNRESET: ("the connection was cut", _NETWORK),
    errno.ETIMEDOUT: ("no answer", _NETWORK),
    errno.EHOSTUNREACH: ("no route to that machine", _NETWORK),
    errno.ENETUNREACH: ("no route to that network", _NETWORK),
}


def describe_cause(error: Exception) -> str:
    """Return the cause in a few words, without the path. For other errors, return their text.

    >>> describe_cause(ValueError("expected a number, got 'x'"))
    "expected a number, got 'x'"
    """
    if not isinstance(error, OSError):
        return str(error)
    said = error.strerror or ""
    if error.errno is None:
        return str(error) or type(error).__name__
    if error.errno in _WORDS and said in ("", os.strerror(error.errno)):
        return _WORDS[error.errno][0]
    # Parley's own texts have more information than the error number.
    return said or "the system refused it"


@contextmanager
def report_os_errors(kind: type[Exception], task: str) -> Iterator[None]:
    """Raise `kind` in place of an `OSError`: what was attempted, and the cause."""
    try:
        yield
    except OSError as error:
        raise kind(f"{task}: {describe_cause(error)}.") from error


def describe_error(error: BaseException) -> str:
    """Return a message for a person. For an `OSError` it has the path, the cause and what to do."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    cause = describe_cause(error).rstrip(".")
    _, remedy = _WORDS.get(error.errno, ("", ""))
    name = error.filename
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    said = f"{name}: {cause}." if isinstance(name, str) else f"{cause[:1].upper()}{cause[1:]}."
    return f"{said} {remedy}".rstrip()
