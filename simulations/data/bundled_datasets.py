"""Define the data sets that need no file, which `parley run` uses if no data are named.

| name | models | content |
|---|---|---|
| breast-cancer | logistic | 569 tumours, 30 properties (scikit-learn's copy of UCI's) |
| digits | softmax | 1797 images of 8 × 8 pixels (scikit-learn's copy of UCI's) |
| synthetic | all | records drawn from a model of the requested kind, by a seed |

Each comes with a schema with public ranges, and goes through the same preprocessing as a file.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema

Columns = dict[str, NDArray[Any]]

CHUNK_ROWS = 2**16
"""Number of records drawn and read at a time."""

_COLUMNS = 20
"""Number of columns of a synthetic record."""

_DIGITS = """
scaling = "record"
[columns]
image = { kind = "array", shape = [8, 8], range = [0, 16], centre = 0 } # darkness, counted 0 to 16
digit = { kind = "label", classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }
"""

_SYNTHETIC = """
scaling = "record"
[columns]
x = { kind = "array", shape = [20], range = [-1, 1] }
y = { kind = "label", positive = [1], negative = [-1], classes = [0, 1, 2], range = [-1, 1] }
"""


@functools.cache
def get_bundled_schema(name: str) -> Schema:
    """Return the schema of a bundled data set, without loading the data."""
    if name not in BUNDLED:
        raise ValueError(f"Expected a data set of {', '.join(BUNDLED)}, got {name!r}.")
    return Schema.from_toml(BUNDLED[name].schema(), source=name)


def _read_breast_cancer_schema() -> str:
    file = resources.files("parley.simulations.data") / "breast-cancer.schema.toml"
    return file.read_text(encoding="utf-8")


def _load_breast_cancer(model_kind: str, records: int, seed: int) -> Columns:
    table = _load_from_scikit_learn("breast_cancer.csv", header=1)
    names = get_bundled_schema("breast-cancer").features
    columns: Columns = {name: table[:, at] for at, name in enumerate(names)}
    columns["diagnosis"] = np.array(["malignant", "benign"])[table[:, -1].astype(np.intp)]
    return columns


def _load_digits(model_kind: str, records: int, seed: int) -> Columns:
    table = _load_from_scikit_learn("digits.csv.gz")
    return {"image": table[:, :-1].reshape(-1, 8, 8), "digit": table[:, -1].astype(np.int64)}


@functools.cache
def _load_from_scikit_learn(name: str, *, header: int = 0) -> NDArray[np.float64]:
    """Return a table from scikit-learn's files, without its import, which takes two seconds."""
    package = find_spec("sklearn")
    places = (package and package.submodule_search_locations) or [""]
    table = np.loadtxt(Path(places[0], "datasets", "data", name), delimiter=",", skiprows=header)
    table.flags.writeable = False  # The next caller gets the same table.
    return table


def _generate_synthetic(model_kind: str, records: int, seed: int) -> Columns:
    """Draw x ~ N(0, I/p), clipped, and y by a fixed model with signal ‖θ‖ = 8 and the kind's own
    noise.
    """
    rng = np.random.default_rng([0x5EED, seed])
    # With a free column at the end, for `Records.buffer`.
    x = np.empty((records, _COLUMNS + 1))[:, :_COLUMNS]
    for begin in range(0, records, CHUNK_ROWS):
        piece = x[begin : begin + CHUNK_ROWS]
        piece[:] = np.clip(rng.standard_normal(piece.shape) / math.sqrt(_COLUMNS), -1, 1)
    outputs, labels = _LABELS.get(model_kind, (1, _sample_signs))
    theta = rng.standard_normal((_COLUMNS, outputs))
    theta *= 8 / np.linalg.norm(theta, axis=0)
    return {"x": x, "y": labels(x @ theta, rng)}


Scores = NDArray[np.float64]


def _sample_signs(scores: Scores, rng: np.random.Generator) -> NDArray[np.generic]:
    chance = 1 / (1 + np.exp(-scores[:, 0]))
    return np.where(rng.random(len(scores)) < chance, 1, -1)


def _sample_targets(scores: Scores, rng: np.random.Generator) -> NDArray[np.generic]:
    return np.asarray(np.clip(scores[:, 0] / 24 + 0.05 * rng.standard_normal(len(scores)), -1, 1))


def _sample_classes(scores: Scores, rng: np.random.Generator) -> NDArray[np.generic]:
    # argmax of scores plus Gumbel noise is a draw from softmax(scores).
    return np.asarray(np.argmax(scores + rng.gumbel(size=scores.shape), axis=1))


_LABELS = {"ridge": (1, _sample_targets), "softmax": (3, _sample_classes)}
"""Kind of model → margins per record, and labels drawn from them; other kinds: −1 and +1.
"""


@dataclass(frozen=True, kw_only=True)
class BundledDataset:
    """A data set that needs no file.

    Attributes:
        records: its size, unless another number is drawn: public, known without loading.
    """

    schema: Callable[[], str]
    columns: Callable[[str, int, int], Columns]
    records: int


BUNDLED: dict[str, BundledDataset] = {
    "breast-cancer": BundledDataset(
        schema=_read_breast_cancer_schema, columns=_load_breast_cancer, records=569
    ),
    "digits": BundledDataset(schema=lambda: _DIGITS, columns=_load_digits, records=1797),
    "synthetic": BundledDataset(
        schema=lambda: _SYNTHETIC, columns=_generate_synthetic, records=5000
    ),
}
