"""Files that hold secrets: readable by their owner alone, when they are written and when read."""

from __future__ import annotations

import os
from pathlib import Path


class PkiError(Exception):
    """A key or certificate that cannot be used, and what to do about it."""


def write_private(path: Path, content: bytes) -> None:
    """Writes a secret that only its owner can read, never readable in between."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(content)


def check_private(path: Path) -> None:
    """Raises PkiError unless the secret is there and nobody but its owner can read it."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise PkiError(f"Cannot read key {path}: {error.strerror}.") from error
    if mode & 0o077:
        raise PkiError(
            f"Expected key {path} to be readable by its owner only (mode 0600), got mode "
            f"{mode:04o}. Run: chmod 600 {path}"
        )
