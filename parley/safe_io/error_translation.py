"""Raise an error of a caller's kind in place of a library's or a lower layer's, with its text.

>>> with translate_errors(ZeroDivisionError, ValueError):
...     1 / 0
Traceback (most recent call last):
    ...
ValueError: division by zero
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def translate_errors(
    kinds: type[Exception] | tuple[type[Exception], ...], build: Callable[[str], Exception]
) -> Iterator[None]:
    """Raise `build(text)` from an error of these kinds, with the error's text."""
    try:
        yield
    except kinds as error:
        raise build(str(error)) from error
