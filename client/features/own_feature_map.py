"""User-defined frozen map: a function that returns a `torch.nn.Module`, optionally with weights.

`'backbone.py:net'` or `'module:function'`: `net(features)` returns a module that maps `[n, p]`
cells to `[n, q]` features. A party runs it only if its own policy names it. Weights are a local
safetensors file next to the code; names and shapes must match the module's.

The map must be a function of one record. Layers that mix records, draw randomness or change by
themselves are refused, and a record must have the same features separately and in a batch.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from parley.client.data.schema import Schema
from parley.client.features.base import BoundFeatureMap, FeatureMap
from parley.client.features.feature_error import FeatureError
from parley.client.models.layer_checks import NetworkError, check_layers, check_repeatable
from parley.client.models.networks import load_own_function
from parley.client.own_code.own_code_names import get_public_name
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.os_errors import describe_cause

_INSTALLED = ("site-packages", "dist-packages")


def find_local_code(code: Path) -> dict[str, Path]:
    """Return all files that `code` imports from its surroundings, recursively, by name from the
    root.
    """
    code = code.resolve()
    package = code.parent
    while (package / "__init__.py").is_file():
        package = package.parent
    root = package
    # Among packages installed side by side, only the file's own package counts as local.
    top = code.relative_to(root).parts[0] if root != code.parent else ""
    if not top and root.name in _INSTALLED:
        return {}
    found: dict[str, Path] = {}
    left = [code]
    while left:
        file = left.pop()
        for name in _list_imports(file, root):
            if top and name.split(".")[0] != top:
                continue
            for each in _find_module_files(root, name):
                known = each.relative_to(root).as_posix()
                if each.resolve() != code and known not in found:
                    found[known] = each
                    left.append(each)
    return dict(sorted(found.items()))


def _list_imports(file: Path, root: Path) -> Iterator[str]:
    """Yield dotted names, from the root, of modules that a file's statements may import."""
    own = file.relative_to(root).with_suffix("").parts
    for statement in ast.walk(ast.parse(file.read_bytes(), filename=str(file))):
        if isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            # Level 1 is the package that contains the file: all parts of its name except the last.
            near = own[: max(0, len(own) - statement.level)] if statement.level else ()
            base = ".".join([*near, *filter(None, [statement.module])])
            yield base
            yield from (f"{base}.{each.name}".lstrip(".") for each in statement.names)


def _find_module_files(root: Path, name: str) -> Iterator[Path]:
    """Yield the files of a module and of its parent packages that are below root."""
    parts = [part for part in name.split(".") if part]
    for count in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:count])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file


_BATCH: Final = 16
_CLOSE = 1e-4
"""Maximum relative difference between a record separately and in a batch, due to rounding."""


@dataclass(frozen=True, kw_only=True)
class OwnFeatureMap(FeatureMap):
    """A user-defined module, frozen.

    Attributes:
        trained_on: what its weights were learned from, as its author states: never the parties'
            records. 'nothing' for a fixed function.
        weights: name of a safetensors file next to the code; empty: the weights that the function
            creates.
        place: path of the code, on this machine.
    """

    trained_on: str = ""
    weights: str = ""
    place: str = field(default="", metadata={"local": True})

    def __post_init__(self) -> None:
        if not self.trained_on.strip():
            expected = "Expected model.feature-settings.trained-on for features of your own"
            remedy = "State what the weights were learned from ('nothing' for a fixed function)"
            why = "It must not be the parties' records"
            raise FeatureError(f"{expected}, got none. {remedy}. {why}.")
        plain = Path(self.weights).name == self.weights and self.weights.endswith(".safetensors")
        if self.weights and not plain:
            expected = "Expected weights as the name of a .safetensors file next to the code"
            raise FeatureError(f"{expected}, got {self.weights!r:.80}.")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that parties agree on, without the path of the code."""
        return {"trained_on": self.trained_on, "weights": self.weights}

    @property
    def public_name(self) -> str:
        """Name without the folder."""
        return get_public_name(self.place)

    def describe_content(self) -> Any:
        """Return digests of the code's own file, the weights, and the local code it imports."""
        files = [self._find_code()]
        if self.weights:
            files.append(self._resolve_path(self.weights))
        try:
            near = find_local_code(files[0])
            own = tuple(_compute_digest(file) for file in files)
            return own + tuple((name, _compute_digest(file)) for name, file in near.items())
        except OSError as error:
            raise FeatureError(f"Cannot read {error.filename}: {describe_cause(error)}.") from error
        except SyntaxError as error:
            raise FeatureError(f"Expected Python in {error.filename}, got: {error.msg}.") from error

    def bind(self, schema: Schema) -> BoundFeatureMap:
        """Return the map for records of p = `schema.dimension` cells."""
        module = self._build_module(schema.dimension)
        made_up = np.random.default_rng(0).uniform(-1, 1, (_BATCH, schema.dimension))
        try:
            check_layers(module)
            check_repeatable(module, _to_tensor(made_up))
            among = _forward(module, made_up)
        except NetworkError as error:
            raise FeatureError(f"{self.place}: {error}") from error
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            message = next(iter(describe_cause(error).splitlines()), "")
            expected = f"Expected {self.place} to take rows of {schema.dimension} cells"
            raise FeatureError(f"{expected}, got {type(error).__name__}: {message}.") from error
        if among.ndim != 2 or len(among) != _BATCH:
            expected = f"Expected {self.place} to return features [n, q]"
            raise FeatureError(f"{expected}, got shape {among.shape} for {_BATCH} rows.")
        batch = self._find_batch_size(module, made_up, among)

        def piece(cells: NDArray[np.float64]) -> NDArray[np.float32]:
            rows = np.empty((len(cells), among.shape[1]), np.float32)
            for begin in range(0, len(cells), batch):
                own = cells[begin : begin + batch]
                padded = np.zeros((batch, cells.shape[1]))
                padded[: len(own)] = own
                rows[begin : begin + len(own)] = _forward(module, padded)[: len(own)]
            return rows

        return BoundFeatureMap(width=among.shape[1], map_piece=piece)

    def _find_batch_size(
        self, module: nn.Module, rows: NDArray[np.float64], among: NDArray[np.float32]
    ) -> int:
        """Return the batch size: 16 if a record's bits are the same in any batch, else 1."""
        if not np.isfinite(among).all():
            raise FeatureError(f"Expected finite features from {self.place}, got others.")
        moved = _forward(module, np.roll(rows, 5, axis=0))
        padded = np.zeros_like(rows)
        padded[0] = rows[0]
        alone = _forward(module, rows[:1])
        largest = float(np.abs(among).max())
        if not np.abs(alone[0] - among[0]).max() <= _CLOSE * largest:
            got = "other features for a record in a batch than for the record alone"
            raise FeatureError(f"Expected {self.place} to act on each record by itself, got {got}.")
        same = np.array_equal(np.roll(among, 5, axis=0), moved)
        return _BATCH if same and np.array_equal(_forward(module, padded)[0], among[0]) else 1

    def _load_function(self) -> Any:
        with translate_errors(NetworkError, FeatureError):
            return load_own_function(self.place)

    def _build_module(self, features: int) -> nn.Module:
        build = self._load_function()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # weights that are not sent are the same everywhere
            try:
                module = build(features)
            except Exception as error:  # user-defined code may raise anything
                what = f"{self.place}({features}) raised {type(error).__name__}"
                raise FeatureError(f"{what}: {error}.") from error
        if not isinstance(module, nn.Module):
            got = type(module).__name__
            raise FeatureError(f"Expected {self.place} to return a torch.nn.Module, got {got}.")
        if self.weights:
            file = self._resolve_path(self.weights)
            try:
                module.load_state_dict(load_file(file), strict=True)
            except (OSError, SafetensorError, RuntimeError) as error:
                message = next(iter(describe_cause(error).splitlines()), "")
                raise FeatureError(f"Cannot load the weights {file}: {message}") from error
        return module.to(torch.float32).requires_grad_(False)

    def _resolve_path(self, name: str) -> Path:
        return self._find_code().parent / name

    def _find_code(self) -> Path:
        """Return the file that contains the function."""
        try:
            found = inspect.getsourcefile(self._load_function())
        except TypeError:  # built into Python
            found = None
        if found is None:
            raise FeatureError(f"Expected {self.place} to be in a Python file, got none.")
        return Path(found)


def _compute_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _to_tensor(rows: NDArray[np.float64]) -> torch.Tensor:
    return torch.as_tensor(np.asarray(rows, np.float32))


def _forward(module: nn.Module, rows: NDArray[np.float64]) -> NDArray[np.float32]:
    with torch.no_grad():
        return np.asarray(module(_to_tensor(rows)).numpy(), np.float32)
