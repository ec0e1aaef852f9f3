"""Private files of a deployment, and the error of its keys and certificates."""

from __future__ import annotations

from pathlib import Path

from parley.safe_io.file_writing import write_file
from parley.safe_io.os_errors import report_os_errors


class PkiError(Exception):
    """A key or certificate that cannot be used. The text says what to do about it."""


def write_private(path: Path, content: bytes) -> None:
    """Write a secret that only its owner can read, at every moment of the write."""
    write_file(path, content, mode=0o600)


def check_private(path: Path) -> None:
    """Raise PkiError unless the secret exists and only its owner can read it."""
    with report_os_errors(PkiError, f"Cannot read key {path}"):
        mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise PkiError(
            f"Expected key {path} to be readable by its owner only (mode 0600), got mode "
            f"{mode:04o}. Run: chmod 600 {path}"
        )
