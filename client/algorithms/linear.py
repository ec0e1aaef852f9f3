"""What the algorithms for linear models share: the task's codec, its size, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.kind import Kind, Party, plain_size, settings_of
from parley.client.algorithms.output_perturbation import OutputPerturbation
from parley.client.contract.decoding import DecodingError, facts_from, value_from
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.client.contract.state import State
from parley.client.models.described import described, linear_model_from

LARGEST_TOLERANCE = 1.0
"""κ: beyond, θ = 0 is a certified optimum of many a party."""

Linear = GradientPerturbation | OutputPerturbation


def linear_kind(algorithm: type[Linear], **words: Any) -> Kind:
    """The row of one of them."""
    return Kind(
        to_task=_to_task,
        of_task=partial(_of_task, algorithm),
        size=_size,
        check=_check,
        check_state=_check_state,
        **words,
    )


def _to_task(algorithm: Linear) -> dict[str, Any]:
    return {"model": described(algorithm.model), "settings": settings_of(algorithm, "model")}


def _of_task(kind: type[Linear], task: Mapping[str, Any], _: Party) -> Linear:
    if set(task) != {"kind", "model", "settings"}:
        raise DecodingError("Expected a model and settings in a linear task, got others.")
    return facts_from(kind, task["settings"], model=linear_model_from(task["model"]))


def _size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The loss, and features times classes."""
    model = task.get("model")
    loss = model.get("loss") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(loss, Mapping):
        raise DecodingError("Expected a model with a loss, got none.")
    widths = [model.get("features"), loss.get("classes", 1)]
    return value_from(str, loss.get("kind"), "loss.kind"), plain_size(widths)


def _check(algorithm: Linear, _: ReleasePlan) -> None:
    """Refuses tasks at which parties contribute nothing."""
    if degenerate := algorithm.model.loss.degenerate:
        raise Declined(Reason.DEGENERATE, degenerate)
    relative = getattr(algorithm, "relative_tolerance", 0.0)
    if relative > LARGEST_TOLERANCE:
        raise Declined(
            Reason.DEGENERATE,
            f"Expected relative_tolerance <= {LARGEST_TOLERANCE:g}, got {relative:g}.",
        )


def _check_state(algorithm: Linear, state: State) -> None:
    """Refuses a model at which the plan's G does not hold: ridge's is proved for ‖θ‖ ≤ R."""
    radius, theta = algorithm.model.loss.theta_radius, state["theta"]
    # A projection ends within rounding of the ball; the plan's rounding margin covers that.
    allowed = radius * (1 + (theta.size + 8) * 2.0**-52)
    if not float(np.sqrt(np.vecdot(theta, theta))) <= allowed:
        raise Declined(Reason.SENSITIVITY, f"Expected ‖θ‖ <= {radius:g}, got a longer one.")
