"""A lock that permits one request at a time in all processes, so that a round is computed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from parley.client.contract.refusals import Declined, Reason

_POLL_S = 0.02


@contextmanager
def hold_request_lock(folder: Path, *, wait_s: float) -> Iterator[None]:
    """Hold the folder's lock, so that no process handles another request meanwhile.

    Raises:
        Declined: busy, after `wait_s`.
    """
    # Only a kernel lock is safe here: it is released when the process ends, in any way.
    lock = FileLock(
        folder / "party.lock",
        mode=0o600,
        poll_interval=_POLL_S,
        fallback_to_soft=False,
        preserve_lock_file=True,
    )
    try:
        acquired = lock.acquire(timeout=wait_s)
    except Timeout:
        raise Declined(Reason.BUSY, "Another request is being handled.") from None
    with acquired:
        yield
