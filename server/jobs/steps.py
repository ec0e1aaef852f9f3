"""Gradient steps by a rule: `algorithm.rounds = "auto"`.

Nothing of it looks at a record: λ and the loss decide. With κ = (L_s + λ)/λ, how much steeper the
objective may curve in one direction than in another, and r = min(√κ, 12),

    T = ⌈5r⌉, at least 10
    Nesterov's momentum β = (r − 1)/(r + 1), and the last iterate
    every record's gradient is clipped to its length at θ = 0

Why: accelerated descent shrinks what is left of the start by 1 − 1/√κ a round (Nesterov 2004,
Theorem 2.2.2), so that 5√κ rounds leave e⁻⁵ of it. Every further round makes the noise of all
larger, and more momentum adds up more of it: hence the 12. A gradient at θ = 0 is as long as one of
a record that the model has no opinion on; only records that it is wrong about have longer ones. So
clipping there costs some bias and takes half of a logistic loss's noise.

A key that the job gives keeps its value. The numbers stand in the job that a run keeps.

>>> steps_by_rule({"rounds": "auto"}, slope=0.5, curvature=0.25, lambda_=0.001)["rounds"]
60
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

_FEWEST, _LARGEST_ROOT = 10, 12.0

LOSSES: Final[dict[str, Callable[[Mapping[str, Any]], tuple[float | None, float]]]] = {
    "logistic": lambda _: (0.5, 0.25),
    "softmax": lambda _: (None, 0.5),
    "ridge": lambda _: (None, 1.0),
    "huber-svm": lambda own: (None, 1 / (2 * own.get("huber-width", 0.5))),
    # Its code says L_s, which is not run to count steps: as of a parabola.
    "own-loss": lambda _: (None, 1.0),
    "own-residual-loss": lambda _: (None, 1.0),
}
"""`model.kind` → |ℓ′(0)|, where it is less than G and known without data, and L_s."""

_DEFAULT: Final = "logistic"


def steps_by_rule(
    given: Mapping[str, Any], *, slope: float | None, curvature: float, lambda_: float
) -> dict[str, Any]:
    """The keys of an `[algorithm]` with `rounds = "auto"`, those that were not given by the rule.

    Args:
        given: the section.
        slope: to which gradients are clipped; None: they are not.
        curvature: L_s.
        lambda_: λ > 0.
    """
    root = min(math.sqrt((curvature + lambda_) / lambda_), _LARGEST_ROOT)
    ruled: dict[str, Any] = {
        "momentum": (root - 1) / (root + 1),
        "nesterov": True,
        "average": False,
        "clip-norm": "auto" if slope is None else slope,
    }
    return {**ruled, **given, "rounds": max(math.ceil(5 * root), _FEWEST)}


def with_steps(tree: Mapping[str, Any], *, releases: int | None) -> Mapping[str, Any]:
    """A job's sections, with the rule's numbers where it asks for them and can have them.

    Args:
        tree: the sections.
        releases: that the algorithm makes, whatever `rounds` says; it takes no steps then.
    """
    algorithm, model = tree.get("algorithm"), tree.get("model", {})
    if not isinstance(algorithm, Mapping) or algorithm.get("rounds") != "auto":
        return tree
    if releases is not None:
        return {**tree, "algorithm": {**algorithm, "rounds": releases}}
    of_loss = LOSSES.get(str(model.get("kind", _DEFAULT))) if isinstance(model, Mapping) else None
    if of_loss is None:
        return tree
    slope, curvature = of_loss(model)
    lambda_, weights = model.get("lambda", 0.01), model.get("class-weights") or [1.0]
    numbers = [lambda_, curvature, *weights] if isinstance(weights, list) else [None]
    if not all(isinstance(each, int | float) and each > 0 for each in numbers):
        return tree  # refused as what it is
    heaviest = max(weights)
    steps = steps_by_rule(
        algorithm,
        slope=None if slope is None else slope * heaviest,
        curvature=curvature * heaviest,
        lambda_=lambda_,
    )
    return {**tree, "algorithm": steps}
