"""Projection of rows on principal components, and the check of such components."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.model_state_encoding import Floats
from parley.privacy.sensitivity.exact_row_arithmetic import keep_within


def project_rows(rows: NDArray[np.floating], components: Floats) -> Floats:
    """Project rows `[N, p]` on the components to `[N, k]`, each only a function of its row.

    A server chooses components and θ. If a row cancels to its last digits, they determine what a
    network computes from it. Therefore no product is rounded. Rows are whole numbers of 2⁻²⁰.
    Components have as many bits as keep |x·c| ≤ ‖x‖·‖c‖, also for any part of the sum, below 2⁵³. A
    row that is not finite, or longer than 32, becomes zeros. If components are not finite, all rows
    do.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        longest = float(np.linalg.norm(components, axis=0).max())
    if not math.isfinite(longest):
        return np.zeros((len(rows), components.shape[1]))
    bits = 27 - math.frexp(longest)[1]
    axes = np.rint(np.ldexp(components, bits))
    products = np.empty((len(rows), components.shape[1]))
    for begin in range(0, len(rows), _CHUNK_ROWS):
        integers = np.rint(rows[begin : begin + _CHUNK_ROWS].astype(np.float64) * 2.0**_ROW_BITS)
        keep_within(integers, 4 ** (_ROW_BITS + 5))
        products[begin : begin + _CHUNK_ROWS] = integers @ axes
    return np.ldexp(products, -_ROW_BITS - bits)


def check_components(components: NDArray[np.generic]) -> None:
    """Check that an array can be the components of some rows."""
    if components.ndim != 2 or components.dtype != np.float64:
        expected = "Expected components [p, k] of float64"
        raise ValueError(f"{expected}, got {components.dtype} of shape {components.shape}.")
    features, count = components.shape
    if not 1 <= count <= features:
        raise ValueError(f"Expected 1 to {features} components of {features} features.")
    if not (np.abs(components) <= MAX_COMPONENT).all():  # False for NaN
        raise ValueError(f"Expected finite components of at most {MAX_COMPONENT:g}.")


MAX_COMPONENT = 1000.0
"""Maximum |entry| of components: they need no more, and rows stay finite."""


_ROW_BITS, _CHUNK_ROWS = 20, 8192
"""Grid bits of projected rows, and how many rows are projected at a time."""


def with_components(algorithm: FederatedAlgorithm, components: Floats) -> FederatedAlgorithm:
    """Return federated averaging whose rows are projected on `[p, k]` components."""
    networked: Any = algorithm
    settings: dict[str, Any] = {"components": components}
    return cast(FederatedAlgorithm, replace(networked, **settings))
