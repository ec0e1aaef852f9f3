"""What an audit's worlds look like for each kind of model and of algorithm: a row of a table each.

A model is recognised by what it learns (`model.learns` of a job), an algorithm by its kind; one
without a row takes the plainest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from parley.client.algorithms.attendance import EVERYONE
from parley.client.algorithms.own import is_own
from parley.simulations.audit.blocks import Block
from parley.simulations.audit.pools import codes_pool, columns_pool, rows_pool, table_schema

ANGLE = 1e-3
"""Between a linear model's canaries and the direction that is theirs alone."""

HIDDEN = 3
"""Units of a hidden layer: one for the state, one for the canary, one more."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Worlds for what a model learns.

    Attributes:
        records, features: of a party, unless the audit is asked for others.
        angle: between a canary and the direction that is its own.
        diagonal: that direction is the diagonal, the worst of a coordinatewise law.
        classes: labels are class numbers, 0 and 1.
        cheap: a world is a row of an array: many are computed at a time.
        model: a job's `[model]`, p → the keys that ε does not depend on, at the least work.
        algorithm: keys of `[algorithm]`, of those that a job has, likewise.
        width: columns of a row, for each of its features.
        schema: p → text of the records' public schema; empty: they have none.
    """

    records: int
    features: int
    angle: float
    diagonal: bool
    classes: bool
    cheap: bool
    model: Callable[[Any, int], dict[str, object]]
    algorithm: Mapping[str, object] = field(default_factory=dict)
    width: int = 1
    schema: Callable[[int], str] = lambda _: ""


def _linear(own: Any, features: int) -> dict[str, object]:
    del own, features
    return {"intercept": False, "features": "none", "feature-settings": {}}


def _network(own: Any, features: int) -> dict[str, object]:
    """As deep as the job's, up to two hidden layers; on components where the job's is."""
    kind = {"kind": "pca-mlp", "components": features} if own.projected else {"kind": "mlp"}
    return {**kind, "hidden": [HIDDEN] * min(len(getattr(own, "hidden", ())), 2)}


LEARNERS: dict[str, Learner] = {
    "linear": Learner(
        records=2,
        features=2,
        angle=ANGLE,
        diagonal=True,
        classes=False,
        cheap=True,
        model=_linear,
        # Keeps θ where the canary's gradient is full: the step is post-processing of what is
        # released.
        algorithm={"learning-rate": 1e-9},
    ),
    "network": Learner(
        records=4,
        features=4,
        angle=0.05,
        diagonal=False,
        classes=True,
        cheap=False,
        model=_network,
    ),
    "nothing": Learner(
        records=2,
        features=2,
        angle=0.0,
        diagonal=False,
        classes=True,
        cheap=True,
        model=lambda own, features: {},
        algorithm={"pairs": "all"},
        width=2,
        schema=table_schema,
    ),
}

MOMENTS = Learner(
    records=2,
    features=3,
    angle=math.pi / 4,
    diagonal=False,
    classes=True,
    cheap=True,
    model=_network,
)
"""Of the release ahead of the rounds: the canaries' outer products are orthogonal."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an algorithm's parties answer.

    Attributes:
        trains: from the state that is sent, which the server may send again.
        optimum: of each party's own objective, whatever state is sent.
        noisy: with noise of a party's own, inside its training.
        slow: a sum of theirs takes long.
        features: of a record, where attacks see most with so few; 0: as many as the model's.
        quiet: the algorithm without noise, with every record in every batch and every party in
            every sum.
        pool: records to try as canaries, where what each record says is added up; None: canaries
            are made for the algorithm's gradients.
    """

    trains: bool = False
    optimum: bool = False
    noisy: bool = False
    slow: bool = False
    features: int = 0
    quiet: Callable[[Any], Any] = lambda algorithm: algorithm
    pool: Callable[[Any], Block] | None = None


def _quiet_averaging(algorithm: Any) -> Any:
    quiet = {"noise_multiplier": 0.0, "clipped_share": 0.0, "sampling_rate": 1.0}
    training = replace(algorithm.training, **quiet)
    return replace(algorithm, training=training, clipped_reach=0.0, attendance=EVERYONE)


def _quiet_sums(algorithm: Any) -> Any:
    training = replace(algorithm.training, sampling_rate=1.0)
    return replace(algorithm, training=training, attendance=EVERYONE)


def _quiet_objectives(algorithm: Any) -> Any:
    """With next to no noise in the objective: about where its optimum is pulled from."""
    return replace(algorithm, objective_epsilon=1e6)


ANSWERS: dict[str, Answer] = {
    "fedavg": Answer(trains=True, noisy=True, quiet=_quiet_averaging),
    "distributed-dp-sgd": Answer(trains=True, slow=True, quiet=_quiet_sums),
    "output-perturbation": Answer(optimum=True),
    "pathak": Answer(optimum=True),
    "objective-perturbation": Answer(
        optimum=True, noisy=True, slow=True, features=1, quiet=_quiet_objectives
    ),
    "second-moments": Answer(),
    "marginals": Answer(pool=codes_pool),
    "random-features": Answer(pool=codes_pool),
    "query": Answer(pool=columns_pool),
    "held-out-counts": Answer(pool=rows_pool),
}

_OWN = Answer(pool=rows_pool)


def answer_of(algorithm: str) -> Answer:
    """The row of an algorithm; without one, an answer at the state that is sent."""
    return _OWN if is_own(algorithm) else ANSWERS.get(algorithm, Answer())
