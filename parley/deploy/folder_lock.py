"""Lock a folder for one process: the server's folder, or the folder of a connected party.

The kernel releases the lock when the process ends, for whatever reason.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.deploy.process_errors import ProcessError


@contextmanager
def hold_folder(folder: Path, *, role: str, command: str) -> Iterator[None]:
    """Hold a folder's lock for this process inside the `with` block.

    Args:
        role: What runs on the folder, "server" or "party". The lock is the file `.ROLE.lock`.
        command: The command that a person would have started twice.

    Raises:
        ProcessError: another process holds the lock.
    """
    # Never follow a link: another user may have put it there.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(folder / f".{role}.lock", flags, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            number = os.read(handle, 32).decode("ascii", "replace").strip()
            which = f"process {number}" if number.isdecimal() else "another process"
            raise ProcessError(
                f"Expected to be the only {role} on {folder}, but {which} runs on it. End it "
                f"first, or leave it running: one `{command}` per folder is enough."
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(handle)
