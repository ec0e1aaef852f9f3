"""Gradient steps by a rule: `algorithm.rounds = "auto"`.

Nothing of it looks at a record. With κ = (L_s + λ)/λ and r = min(√κ, 12),

    T = ⌈5r⌉, at least 10
    Nesterov's momentum β = (r − 1)/(r + 1), and the last iterate
    every record's gradient is clipped to its length at θ = 0

Accelerated descent shrinks what is left of the start by 1 − 1/√κ a round (Nesterov 2004, Theorem
2.2.2), so that 5√κ rounds leave e⁻⁵ of it. Every further round makes the noise of all larger, and
more momentum adds up more of it: hence the 12. Only records that the model is wrong about have
gradients longer than at θ = 0: clipping there costs some bias and halves a logistic loss's noise.
A key that the job gives keeps its value.

>>> steps_by_rule(slope=0.5, curvature=0.25, lambda_=0.001)["rounds"]
60
"""

from __future__ import annotations

import math
from typing import Any

_FEWEST, _LARGEST_ROOT = 10, 12.0


def steps_by_rule(*, slope: float | None, curvature: float, lambda_: float) -> dict[str, Any]:
    """Keys of an `[algorithm]`, of a slope to clip to (None: no clip), L_s and λ > 0."""
    root = min(math.sqrt((curvature + lambda_) / lambda_), _LARGEST_ROOT)
    return {
        "momentum": (root - 1) / (root + 1),
        "nesterov": True,
        "average": False,
        "clip-norm": "auto" if slope is None else slope,
        "rounds": max(math.ceil(5 * root), _FEWEST),
    }
