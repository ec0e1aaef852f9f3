"""Build the table of a user-defined loss: its function is called at public points, never at a
record.

A table states its constants itself (`parley.client.models.tabulated_losses`): no ε depends on how
it was built.

    >>> from parley.client.models.tabulated_losses import TabledSignLoss
    >>> squared_hinge = lambda z, y: max(0.0, 1 - y * z) ** 2
    >>> build_tabled_loss(TabledSignLoss, squared_hinge, lipschitz=4.0, steeper="clip").lipschitz
    4.0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np

from parley.client.models.tabulated_losses import MAX_SLOPE, NODES, REACH, STEP, TabledLoss
from parley.client.own_code.own_code_errors import list_code_failures
from parley.client.own_code.own_code_loading import describe_failure

_ROUNDED: Final = 2.0**-30
"""Decrease between entries that rounding may cause, as a fraction of the steepest slope."""

Tabled = TypeVar("Tabled", bound="TabledLoss")


def build_tabled_loss(
    kind: type[Tabled],
    loss: Callable[[float, float], float],
    *,
    lipschitz: float,
    steeper: Literal["refuse", "clip"] = "refuse",
) -> Tabled:
    """Build the table of a function of one record's margin and label.

    Args:
        kind: `TabledSignLoss` (y is −1 or +1), or `TabledResidualLoss` (a function of z − y; y is 0
            here).
        steeper: what happens to a steeper slope: it is refused, or clipped to ±G, which leaves the
            loss convex.
    """
    if not 0 < lipschitz <= MAX_SLOPE:
        raise ValueError(f"Expected a Lipschitz constant in (0, {MAX_SLOPE:g}], got {lipschitz:g}.")
    labels = (-1.0, 1.0) if kind.rows == 2 else (0.0,)
    if kind.rows == 1:
        _check_residual(loss)
    rows, starts = [], []
    for label in labels:
        halfway = -REACH + STEP * (np.arange(NODES + 1) - 0.5)
        values = np.array([_evaluate_loss(loss, float(z), label) for z in halfway])
        slopes = np.diff(values) / STEP
        grown = np.maximum.accumulate(slopes)
        fallen = grown - slopes
        if (fallen > _ROUNDED * max(float(np.abs(slopes).max()), 1.0)).any():
            z = -REACH + STEP * int(fallen.argmax())
            place = f"z = {z:g}, y = {label:g}"
            raise ValueError(f"Expected a loss that is convex in z, got none at {place}.")
        over = np.abs(grown) > lipschitz * (1 + _ROUNDED)
        if steeper == "refuse" and over.any():
            at = int(np.abs(grown).argmax())
            got = f"{abs(grown[at]):.4g} at z = {-REACH + STEP * at:g}, y = {label:g}"
            raise ValueError(f"Expected slopes of at most {lipschitz:g}, as stated, got {got}.")
        row = np.clip(grown, -lipschitz, lipschitz)
        rows.append(tuple(row.tolist()))
        # A clipped loss differs from the function. It equals the function at z = 0.
        below = row[: NODES // 2 + 1]
        fall = float(np.sum(below[1:] + below[:-1])) * STEP / 2
        starts.append(_evaluate_loss(loss, 0.0, label) - fall)
    return kind(slopes=tuple(rows), starts=tuple(starts))


def _evaluate_loss(loss: Callable[[float, float], float], z: float, y: float) -> float:
    code = getattr(loss, "__code__", None)
    place = getattr(code, "co_filename", "")
    expected = f"Expected a number as the loss at z = {z:g}, y = {y:g}, got"
    try:
        given = loss(z, y)
    except list_code_failures() as error:
        raise ValueError(f"{expected} {describe_failure(error, place)}.") from error
    try:
        value = float(given)
    except (TypeError, ValueError) as error:
        shape = f" and shape {given.shape}" if isinstance(given, np.ndarray) else ""
        where = f" ({Path(place).name}, line {code.co_firstlineno})" if code else ""
        got = f"an object of type {type(given).__name__}{shape}{where}"
        raise ValueError(f"{expected} {got}.") from error
    if not math.isfinite(value):
        raise ValueError(f"Expected a finite loss at z = {z:g}, y = {y:g}, got {value}.")
    return value


def _check_residual(loss: Callable[[float, float], float]) -> None:
    for z, y in ((0.25, 1.0), (-1.5, 0.5), (3.0, -1.0)):
        one, other = _evaluate_loss(loss, z, y), _evaluate_loss(loss, z - y, 0.0)
        if not abs(one - other) <= 1e-9 * max(abs(one), 1.0):
            got = f"{one:g} and {other:g} at z = {z:g}, y = {y:g}"
            raise ValueError(f"Expected a function of z - y, got {got}.")
