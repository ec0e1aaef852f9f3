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
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.data.schema import Schema
from parley.module_loading.plugin_table import load_attribute

Columns = dict[str, NDArray[Any]]

_GENERATED = "parley.simulations.data.generated_dataset"
"""The records of `synthetic`, imported only for a job that reads them."""

CHUNK_ROWS = 2**16
"""Number of records read at a time."""

_DIGITS = """
scaling = "record"
[columns]
image = { kind = "array", shape = [8, 8], range = [0, 16], centre = 0 } # darkness, counted 0 to 16
digit = { kind = "label", classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }
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


def _generate_records(model_kind: str, records: int, seed: int) -> Columns:
    columns: Columns = load_attribute(f"{_GENERATED}:generate_records")(model_kind, records, seed)
    return columns


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
        schema=lambda: load_attribute(f"{_GENERATED}:SCHEMA"),
        columns=_generate_records,
        records=5000,
    ),
}
