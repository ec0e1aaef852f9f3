"""The task of an algorithm that learns a linear model: its codec, and what a party refuses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    compute_min_parameters,
    get_settings,
)
from parley.client.contract.model_state_encoding import State
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass, decode_value
from parley.client.models.linear_model_codec import decode_linear_model, encode_linear_model
from parley.client.models.linear_models import LinearModel

MAX_TOLERANCE = 1.0
"""Maximum κ. Beyond, θ = 0 is a certified optimum for many parties."""


class LinearAlgorithm(Protocol):
    """An algorithm that learns a linear model, a dataclass with its settings as fields."""

    @property
    def model(self) -> LinearModel:
        """Model that is learned."""


def build_linear_spec(algorithm: type[Any], **other_fields: Any) -> AlgorithmSpec:
    """Build the row of an algorithm that learns a linear model."""
    return AlgorithmSpec(
        to_task=_to_task,
        from_task=partial(_from_task, algorithm),
        parse_size=_parse_size,
        check=_check,
        check_state=_check_state,
        **other_fields,
    )


def _to_task(algorithm: LinearAlgorithm) -> dict[str, Any]:
    settings = get_settings(algorithm, "model")
    return {"model": encode_linear_model(algorithm.model), "settings": settings}


def _from_task(kind: type[Any], task: Mapping[str, Any], _: PartyResources) -> Any:
    check_keys(task, "model", "settings")
    return decode_dataclass(kind, task["settings"], model=decode_linear_model(task["model"]))


def _parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the loss, and features times classes."""
    model = task.get("model")
    loss = model.get("loss") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(loss, Mapping):
        raise DecodingError("Expected a model with a loss, got none.")
    widths = [model.get("features"), loss.get("classes", 1)]
    return decode_value(str, loss.get("kind"), "loss.kind"), compute_min_parameters(widths)


def _check(algorithm: LinearAlgorithm, _: ReleasePlan) -> None:
    """Refuse tasks in which parties contribute nothing."""
    if degenerate := algorithm.model.loss.degenerate_reason:
        raise Declined(Reason.DEGENERATE, degenerate)
    relative = getattr(algorithm, "relative_tolerance", 0.0)
    if relative > MAX_TOLERANCE:
        expected = f"Expected relative_tolerance <= {MAX_TOLERANCE:g}"
        raise Declined(Reason.DEGENERATE, f"{expected}, got {relative:g}.")


def _check_state(algorithm: LinearAlgorithm, state: State) -> None:
    """Refuse a model at which the plan's G does not hold: ridge's is proved for ‖θ‖ ≤ R."""
    radius, theta = algorithm.model.loss.theta_radius, state["theta"]
    # A projection ends within rounding of the ball. The plan's rounding margin covers that.
    allowed = radius * (1 + (theta.size + 8) * 2.0**-52)
    if not float(np.sqrt(np.vecdot(theta, theta))) <= allowed:
        raise Declined(Reason.SENSITIVITY, f"Expected ‖θ‖ <= {radius:g}, got a longer one.")
