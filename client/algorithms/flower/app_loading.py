"""Load a Flower app's module by name, and compute the digest that server and parties compare.

A name is `file.py:app` or `module:app`. The digest covers the file, or each Python file of the
module's top-level package. Code that the app imports from elsewhere is not covered, such as another
file next to `file.py`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from parley.client.own_code.own_code_errors import OwnCodeError, list_code_failures
from parley.client.own_code.own_code_loading import (
    compute_own_file_digest,
    describe_failure,
    load_code,
)
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.file_reading import list_files

INITIAL_NAMES = ("initial_arrays", "Net")
"""Names in an app's module that `algorithm.initial = "auto"` looks for, in this order."""

_imported: dict[str, str] = {}
"""Module → digest of its package when this process imported it."""


class FlowerAppError(OwnCodeError):
    """A Flower app cannot be loaded, or a call of it failed; the message has no record's value."""


def get_place(name: str) -> str:
    """Return the file or module of `file.py:app`, `module:app`."""
    return name.rpartition(":")[0]


def compute_app_digest(name: str) -> str:
    """Return the SHA-256, in hex, of an app's file or package, without importing it.

    Raises FlowerAppError.
    """
    place = get_place(name)
    if place.endswith(".py"):
        digest = compute_own_file_digest(name)
        if digest is None:
            raise FlowerAppError(f"Expected the Flower app's file at {place}, got none.")
        return digest
    package = place.partition(".")[0]
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    files = [each for folder in folders for each in list_files(folder) if each[1].suffix == ".py"]
    if not folders and spec is not None and spec.origin:
        files = [(os.fsencode(Path(spec.origin).name), Path(spec.origin))]
    if not files:
        expected = f"Expected an installed module {package!r} of the Flower app {name}"
        remedy = "Install the app's package here (pip install), or name a file: app.py:app."
        raise FlowerAppError(f"{expected}, got none. {remedy}")
    whole = hashlib.sha256(b"parley/flower-app/v1")
    for relative, file in sorted(files):
        whole.update(relative + b"\0")
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def load_namespace(name: str) -> Mapping[str, Any]:
    """Return what an app's module defines; its file is run once for each of its contents.

    Raises FlowerAppError.
    """
    place, digest = get_place(name), compute_app_digest(name)
    if not place.endswith(".py") and _imported.setdefault(place, digest) != digest:
        expected = f"Expected the package of {place} as this process imported it"
        raise FlowerAppError(f"{expected}, got another version. Restart the process.")
    return _load_namespace_once(place, str(Path(place).absolute()), digest)


@functools.lru_cache(maxsize=8)
def _load_namespace_once(place: str, path: str, digest: str) -> Mapping[str, Any]:
    del path, digest  # parts of the cache's key
    with translate_errors(OwnCodeError, FlowerAppError):
        namespace: dict[str, Any] = load_code(f"{place}:__dict__", what="Flower app")
    return MappingProxyType(namespace)


def call_initial(app: str, initial: str, *, seed: int) -> Any:
    """Return what the app's function of initial arrays returns, called with fixed seeds.

    Args:
        initial: `file.py:function`, `module:function`, or auto for one of `INITIAL_NAMES` in the
            app's module.

    Raises FlowerAppError.
    """
    names: tuple[str, ...] = INITIAL_NAMES
    if initial != "auto":
        names = (initial.rpartition(":")[2],)
    place = get_place(app if initial == "auto" else initial)
    namespace = load_namespace(f"{place}:{names[0]}")
    found = next((namespace[each] for each in names if callable(namespace.get(each))), None)
    if found is None:
        raise FlowerAppError(
            f"Expected a function or class {' or '.join(names)} in {place}, which returns the "
            "initial arrays, got none. Set algorithm.initial to its name: 'task.py:Net'."
        )
    try:
        with use_seed(seed):
            return found()
    except list_code_failures() as error:
        expected = f"Expected the initial arrays from {place}:{found.__name__}()"
        raise FlowerAppError(f"{expected}, got {describe_failure(error, place)}.") from error


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """Seed the usual generators, so that initial arrays repeat, and put their states back."""
    torch: Any = sys.modules.get("torch")
    known, plain = np.random.get_state(), random.getstate()
    tensors = None if torch is None else torch.random.get_rng_state()
    try:
        np.random.seed(seed % 2**32)
        random.seed(seed)
        if torch is not None:
            torch.random.manual_seed(seed % 2**63)
        yield
    finally:
        np.random.set_state(known)
        random.setstate(plain)
        if torch is not None:
            torch.random.set_rng_state(tensors)
