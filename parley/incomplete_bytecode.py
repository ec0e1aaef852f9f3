"""Describe an import that fails because Python's compiled file (.pyc) of a module is incomplete.

Before 3.12.8 and 3.13.1, so in every 3.11, CPython stores an incomplete file if the disk is full
when a module is compiled (gh-126606). Each later import of the module then raises `EOFError`.
"""

from __future__ import annotations

import traceback


def describe_incomplete_bytecode(error: BaseException | None) -> str | None:
    """Return which file is incomplete and what to do; None for any other error."""
    if not isinstance(error, EOFError):
        return None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_compile_bytecode":
            file = frame.f_locals.get("bytecode_path")
            return (
                f"Python's compiled file {file} is incomplete: the disk was probably full when it "
                "was written. Free some space, delete this file, then start again."
            )
    return None
