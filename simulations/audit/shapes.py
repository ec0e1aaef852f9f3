"""What an audit's worlds look like for each kind of model and of algorithm: a row of a table each.

A model is told by what it learns (`model.learns` of a job), an algorithm by its kind; one without a
row takes the plainest.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANGLE", "ANSWERS", "LEARNERS", "Answer", "Learner", "answer_of"]

ANGLE = 1e-3
"""Between a linear model's canaries and the direction that is theirs alone."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Worlds for what a model learns.

    Attributes:
        records, features: of a party, unless the audit is asked for others.
        angle: between a canary and the direction that is its own.
        diagonal: that direction is the diagonal, the worst of a coordinatewise law.
        classes: labels are class numbers, 0 and 1.
        copies: of a world's arrays in memory.
        alone: a party is a world by itself where its own noise protects its records.
        cheap: a world is a row of an array: many are computed at a time.
        model: keys of `[model]` that ε does not depend on, at the value of the least work.
    """

    records: int
    features: int
    angle: float
    diagonal: bool
    classes: bool
    copies: int
    alone: bool
    cheap: bool
    model: dict[str, object]


LEARNERS: dict[str, Learner] = {
    "linear": Learner(
        records=2,
        features=2,
        angle=ANGLE,
        diagonal=True,
        classes=False,
        copies=1,
        alone=False,
        cheap=True,
        model={"intercept": False, "features": "none", "feature-settings": {}},
    ),
    "network": Learner(
        records=4,
        features=4,
        angle=0.05,
        diagonal=False,
        classes=True,
        copies=2,
        alone=True,
        cheap=False,
        model={"kind": "mlp", "hidden": []},
    ),
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an algorithm's parties answer.

    Attributes:
        trains: from the state that is sent, a whole update, which the server may send again.
        optimum: of their own objective, whatever state is sent.
    """

    trains: bool = False
    optimum: bool = False


ANSWERS: dict[str, Answer] = {
    "fedavg": Answer(trains=True),
    "output-perturbation": Answer(optimum=True),
}


def answer_of(algorithm: str) -> Answer:
    """The row of an algorithm; without one, an answer at the state that is sent."""
    return ANSWERS.get(algorithm, Answer())
