"""Errors of your own code."""

from __future__ import annotations


class OwnCodeError(ValueError):
    """Your own code is missing, cannot be imported, or is not a function."""


def list_code_failures() -> tuple[type[BaseException], ...]:
    """Return what a call of your own code may raise: anything but an interrupt of this process.

    `exit()` in it fails the call and leaves the process. Libraries in Rust, such as polars, raise
    panics that are no `Exception`.
    """
    interrupts = (KeyboardInterrupt, GeneratorExit)
    return tuple(each for each in BaseException.__subclasses__() if each not in interrupts)
