"""Errors of your own code."""

from __future__ import annotations


class OwnCodeError(ValueError):
    """Your own code is missing, cannot be imported, or is not a function."""


CODE_FAILURES = (Exception, SystemExit)
"""What a call of your own code may raise. `exit()` in it fails the call and leaves the process."""
