"""The bundled data set `synthetic`: records drawn from a model of the requested kind, by a seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK_ROWS = 2**16
"""Number of records drawn at a time."""

_COLUMNS = 20
"""Number of columns of a synthetic record."""

SCHEMA = """
scaling = "record"
[columns]
x = { kind = "array", shape = [20], range = [-1, 1] }
y = { kind = "label", positive = [1], negative = [-1], classes = [0, 1, 2], range = [-1, 1] }
"""


def generate_records(model_kind: str, records: int, seed: int) -> dict[str, NDArray[Any]]:
    """Draw x ~ N(0, I/p), clipped, and y by a fixed model with signal ‖θ‖ = 8 and the kind's own
    noise.
    """
    rng = np.random.default_rng([0x5EED, seed])
    # With a free column at the end, for `Records.buffer`.
    x = np.empty((records, _COLUMNS + 1))[:, :_COLUMNS]
    for begin in range(0, records, _CHUNK_ROWS):
        piece = x[begin : begin + _CHUNK_ROWS]
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
