"""One process per folder: a server's, and a party's that attends.

The kernel holds the lock, and it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.deploy.child_processes import ProcessError


@contextmanager
def hold_folder(folder: Path, *, role: str, command: str) -> Iterator[None]:
    """Hold a folder for this process while the block lasts.

    Args:
        role: What runs on it: "server" or "party". The lock is the file `.ROLE.lock`.
        command: The command that a person would have started twice.

    Raises:
        ProcessError: another process holds it.
    """
    # Never through a link: somebody else may have put it there.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(folder / f".{role}.lock", flags, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            number = os.read(handle, 32).decode("ascii", "replace").strip()
            which = f"process {number}" if number.isdecimal() else "another process"
            raise ProcessError(
                f"Expected to be the only {role} on {folder}, but {which} runs on it. End that one "
                f"first, or leave it running: one `{command}` per folder is enough."
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(handle)
