"""Public states of an audited network, at which a canary's gradient is full and no other record's.

Without hidden layers the state puts two canaries, at an angle, far on the wrong side. With them
both canaries are the same row, `u`, with the two labels: the state gives them equal scores, so that
∂ℓ/∂scores = ±(½, −½), and every layer's gradient is opposite. One unit of each layer carries `u`,
one carries the feature `s`, where every other record sits on its label's side, with no gradient.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.simulations.audit.audited import Audited
from parley.simulations.audit.shapes import HIDDEN, LEARNERS
from parley.simulations.audit.smaller import AuditError

_FAR = 512.0
"""Of a network's weights along `s`: single precision still resolves a step beside it."""


def hidden_layers(audited: Audited) -> int:
    """How many the audited network has."""
    if audited.learner is not LEARNERS["network"]:
        return 0
    job: Any = audited.job
    return len(job.model.hidden)


def network_theta(audited: Audited, sign: float) -> NDArray[np.float64]:
    """`[d]` parameters: with sign −1 the canaries' gradients are full.

    Raises:
        AuditError: a network of other parameters.
    """
    p, depth = audited.shape.features, hidden_layers(audited)
    theta = _deep(audited, p, depth) if depth else _plain(p, sign)
    if theta.size != audited.algorithm.model.dimension:
        raise AuditError(
            f"Expected a network of {theta.size} parameters for {p} features, got "
            f"{audited.algorithm.model.dimension}."
        )
    return theta


def _plain(p: int, sign: float) -> NDArray[np.float64]:
    s = np.eye(p)[1 % p]
    weights = np.stack([-s, s]) * sign * _FAR
    return np.concatenate([weights.ravel(), np.zeros(2)])


def _deep(audited: Audited, p: int, depth: int) -> NDArray[np.float64]:
    """Units 0 and 1 of every layer carry `s` and `u`; the scores are steep, for full gradients."""
    training: Any = getattr(audited.algorithm, "training")  # noqa: B009 - a network's alone
    least = min(audited.algorithm.model.losses.weights, default=1.0)
    steep = 2.0 ** math.ceil(math.log2(max(8.0, 4 * (training.clip_norm or 1.0) / least)))
    first = np.zeros((HIDDEN, p))
    first[0, 1 % p] = first[1, 0] = 1.0
    between = np.zeros((HIDDEN, HIDDEN))
    between[0, 0] = between[1, 1] = 1.0
    last = np.zeros((2, HIDDEN))
    last[:, 0], last[:, 1] = (_FAR * steep, -_FAR * steep), (steep, -steep)
    # A canary's score is moved back to where both classes are alike.
    bias = np.array([-1.0, 1.0]) * steep * math.sqrt(p)
    parts = [first, np.zeros(HIDDEN)]
    for _ in range(depth - 1):
        parts += [between, np.zeros(HIDDEN)]
    return np.concatenate([np.ravel(part) for part in [*parts, last, bias]])
