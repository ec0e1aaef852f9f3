"""What is said for a process that is ended from inside, without a chance to say it.

Ray ends a driver's process at once when the node that it is connected to goes away.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_WATCH = "import sys; sys.stdin.read(1) or sys.stderr.write(sys.argv[1])"


@contextmanager
def last_words(text: str) -> Iterator[None]:
    """Has `text` written to standard error if this process ends before the block does."""
    watcher = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-I", "-S", "-c", _WATCH, f"\n{text}\n"],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us alone
    )
    try:
        yield
    finally:
        watcher.communicate(b".")
