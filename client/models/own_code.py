"""Functions of your own code, by their names: 'module:function' or 'file.py:function'."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any


class OwnCodeError(ValueError):
    """Your own code that is not there, or is no function."""


def code_named(name: str, *, what: str) -> Any:
    """What 'module:attribute' or 'file.py:attribute' names, or None: its code is run.

    Args:
        name: of it; `__main__:f` is one that a notebook or script defines itself.

    Raises OwnCodeError.
    """
    place, _, attribute = name.rpartition(":")
    try:
        if not place.endswith(".py"):
            return getattr(importlib.import_module(place), attribute, None)
        path = Path(place)
        if not path.is_file():
            raise OwnCodeError(f"Expected the {what} file at {place}, got none.")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise OwnCodeError(f"Expected a Python file, got {place}.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise OwnCodeError(f"Cannot import the {what}'s module {place!r}: {error}.") from error
    return getattr(module, attribute, None)


def function_named(name: str, *, what: str = "model") -> Callable[..., Any]:
    """The function that `code_named` finds. Raises OwnCodeError."""
    found = code_named(name, what=what)
    if not callable(found):
        place, _, function = name.rpartition(":")
        raise OwnCodeError(f"Expected a function {function!r} in {place}, got {found!r}.")
    called: Callable[..., Any] = found
    return called
