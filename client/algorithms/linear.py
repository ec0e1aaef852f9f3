"""What the algorithms for linear models share: the task's codec, its size, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

import numpy as np

from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.kind import Kind, Party, plain_size
from parley.client.algorithms.output_perturbation import OutputPerturbation
from parley.client.contract.decoding import DecodingError, facts_from, value_from
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Reason
from parley.client.contract.state import State
from parley.client.models.described import described, linear_model_from

LARGEST_TOLERANCE = 1.0
"""κ: beyond, θ = 0 is a certified optimum of many a party."""

Linear = GradientPerturbation | OutputPerturbation


class LinearTask:
    """The codec and the checks of one of the algorithms."""

    def __init__(self, algorithm: type[Linear]) -> None:
        self.algorithm = algorithm

    def kind(self, title: str) -> Kind:
        """The row of the algorithm."""
        return Kind(
            title=title,
            to_task=self.to_task,
            of_task=self.of_task,
            size=self.size,
            check=self.check,
            check_state=self.check_state,
        )

    def to_task(self, algorithm: Linear) -> dict[str, Any]:
        """The model and the settings."""
        settings = asdict(algorithm)
        del settings["model"]
        settings = {key: str(v) if isinstance(v, Enum) else v for key, v in settings.items()}
        return {"model": described(algorithm.model), "settings": settings}

    def of_task(self, task: Mapping[str, Any], party: Party) -> Linear:
        """The inverse of `to_task`.

        Raises:
            DecodingError: not such a description.
        """
        del party
        if set(task) != {"kind", "model", "settings"}:
            raise DecodingError("Expected a model and settings in a linear task, got others.")
        return facts_from(self.algorithm, task["settings"], model=linear_model_from(task["model"]))

    def size(self, task: Mapping[str, Any]) -> tuple[str, int]:
        """The loss, and features times classes."""
        model = task.get("model")
        loss = model.get("loss") if isinstance(model, Mapping) else None
        if not isinstance(model, Mapping) or not isinstance(loss, Mapping):
            raise DecodingError("Expected a model with a loss, got none.")
        return value_from(str, loss.get("kind"), "loss.kind"), plain_size(
            [model.get("features"), loss.get("classes", 1)]
        )

    def check(self, algorithm: Linear, plan: ReleasePlan) -> None:
        """Refuses tasks at which parties contribute nothing.

        Raises:
            Declined: degenerate.
        """
        del plan
        if degenerate := algorithm.model.loss.degenerate:
            raise Declined(Reason.DEGENERATE, degenerate)
        relative = getattr(algorithm, "relative_tolerance", 0.0)
        if relative > LARGEST_TOLERANCE:
            raise Declined(
                Reason.DEGENERATE,
                f"Expected relative_tolerance <= {LARGEST_TOLERANCE:g}, got {relative:g}.",
            )

    def check_state(self, algorithm: Linear, state: State) -> None:
        """Refuses a model at which the plan's G does not hold: ridge's is proved for ‖θ‖ ≤ R.

        Raises:
            Declined: sensitivity.
        """
        radius, theta = algorithm.model.loss.theta_radius, state["theta"]
        # A projection ends within rounding of the ball; the plan's rounding margin covers that.
        allowed = radius * (1 + (theta.size + 8) * 2.0**-52)
        if not float(np.sqrt(np.vecdot(theta, theta))) <= allowed:
            raise Declined(Reason.SENSITIVITY, f"Expected ‖θ‖ <= {radius:g}, got a longer one.")
