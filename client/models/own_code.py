"""Functions of one's own code, by their names: 'module:function' or 'file.py:function'."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["OwnCodeError", "function_named"]


class OwnCodeError(ValueError):
    """Code of one's own that is not there, or is no function."""


def function_named(name: str, *, what: str = "model") -> Callable[..., Any]:
    """What 'module:function' or 'file.py:function' names: its code is run.

    Args:
        name: of the function; `__main__:f` is one that a notebook or script defines itself.
        what: it is the file of, for errors.

    Raises:
        OwnCodeError: not there, or no function.
    """
    place, _, function = name.rpartition(":")
    try:
        if place.endswith(".py"):
            path = Path(place)
            if not path.is_file():
                raise OwnCodeError(f"Expected a {what} file at {place}, got none.")
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None:
                raise OwnCodeError(f"Expected a Python file, got {place}.")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except ImportError as error:
        raise OwnCodeError(f"Cannot import the {what}'s module {place!r}: {error}.") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise OwnCodeError(f"Expected a function {function!r} in {place}, got {found!r}.")
    called: Callable[..., Any] = found
    return called
