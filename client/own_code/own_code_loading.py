"""Load functions and classes of your own code by name: 'module:function' or 'file.py:function'.

Your own code may raise any exception. `describe_failure` turns it into one line.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from parley.client.own_code.own_code_errors import OwnCodeError, list_code_failures

_MAX_ERROR_LENGTH = 200


def describe_failure(error: BaseException, location: str, *, values: bool = True) -> str:
    """Return one line that describes an exception of your own code, with the line of your file.

    Args:
        location: 'module' or 'file.py', the part of a name before its colon.
        values: whether the exception's text may be shown. It may contain a record's values.
    """
    text = " ".join(str(error).split())[:_MAX_ERROR_LENGTH].rstrip(".") if values else ""
    if isinstance(error, OSError) and error.errno is not None:
        text = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SyntaxError):  # its text contains file and line
        return shown
    module = sys.modules.get(location)
    place = None if location.endswith(".py") else getattr(module, "__file__", None)
    file = Path(place or location)
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if Path(frame.filename).absolute() == file.absolute()]
    return f"{shown} ({file.name}, line {frames[-1].lineno})" if frames else shown


def locate_failure(error: BaseException) -> str:
    """Return 'file.py:line' of the innermost frame outside libraries, without the error's text.

    An exception that was made but not raised has no frame.
    """
    frames = traceback.extract_tb(error.__traceback__)
    folders = [sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")]
    libraries = ("<frozen", *folders)
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    found = own or list(frames)
    return f"{Path(found[-1].filename).name}:{found[-1].lineno}" if found else "an unknown line"


def load_code(name: str, *, what: str) -> Any:
    """Return the object named 'module:attribute' or 'file.py:attribute', or None. This runs its
    code.

    Args:
        name: `__main__:f` names an object that a notebook or script defines itself.

    Raises OwnCodeError.
    """
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py") and not Path(place).is_file():
        raise OwnCodeError(f"Expected the {what} file at {place}, got none.")
    try:
        is_file = place.endswith(".py")
        module = _import_file(Path(place)) if is_file else importlib.import_module(place)
    except list_code_failures() as error:
        why = describe_failure(error, place)
        raise OwnCodeError(f"Cannot import the {what}'s module {place!r}: {why}.") from error
    return getattr(module, attribute, None)


def _import_file(path: Path) -> ModuleType:
    """Run a file as a module under a unique name."""
    # Registered while it runs and afterwards: dataclasses, and type hints stored as text (`from
    # __future__ import annotations`), are looked up by the module's name.
    name = f"parley_own_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"Expected a Python file, got {path}")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def load_function(name: str, *, what: str = "model") -> Callable[..., Any]:
    """Return the function that `load_code` finds. Raises OwnCodeError."""
    found = load_code(name, what=what)
    if not callable(found):
        place, _, function = name.rpartition(":")
        got = "none of that name" if found is None else f"an object of type {type(found).__name__}"
        expected = f"Expected a class or function {function!r} in {place}"
        raise OwnCodeError(f"{expected}, got {got}. Check the name after the colon.")
    called: Callable[..., Any] = found
    return called


def compute_own_file_digest(kind: str) -> str | None:
    """Return the SHA-256 of the file of your own code, or None without such a file."""
    place, colon, _ = kind.rpartition(":")
    file = Path(place)
    if not colon or file.suffix != ".py" or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()
