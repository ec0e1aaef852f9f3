"""What the server adds to an algorithm's row: from a job to its model, algorithm and plan.

Keyed as `parley.client.algorithms.registry.ALGORITHMS` is. Second moments are no job's: they are a
release ahead of another algorithm's rounds (`parley.server.planning.principal_components`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.output_perturbation import OutputPerturbation
from parley.client.algorithms.own import AnyRows, OwnAlgorithmError, build_own, is_own
from parley.client.models.linear import HuberSVM, LinearModel, Logistic, Loss, Softmax, SquaredLoss
from parley.server.jobs.job import Job, JobError
from parley.server.planning.claimed import plan_claimed
from parley.server.planning.federation import Federation

if TYPE_CHECKING:
    from parley.client.contract.plan import ReleasePlan

__all__ = ["PLANNERS", "Planner", "planner_of"]


@dataclass(frozen=True, kw_only=True)
class Planner:
    """How the server plans one kind of algorithm.

    Attributes:
        model: job, columns of the records, K → what is learned. Raises JobError.
        algorithm: job, model, the parties' public facts → the algorithm. Raises JobError,
            CalibrationError.
        plan: job, algorithm, facts, the run's name → the plan of every round. Raises JobError,
            CalibrationError, RingTooSmall.
    """

    model: Callable[[Job, int, int], Any]
    algorithm: Callable[[Job, Any, Federation | None], FederatedAlgorithm]
    plan: Callable[[Job, Any, Federation, str], ReleasePlan]


def _linear_model(job: Job, features: int, classes: int) -> LinearModel:
    settings = job.model
    losses: dict[str, Callable[[], Loss]] = {
        "logistic": Logistic,
        "softmax": lambda: Softmax(classes=classes),
        "ridge": lambda: SquaredLoss(radius=settings.radius, label_bound=settings.label_bound),
        "huber-svm": lambda: HuberSVM(width=settings.huber_width),
    }
    return LinearModel(kind=losses[settings.kind](), features=features + settings.intercept)


def _gradient(job: Job, model: LinearModel, _: Federation | None) -> FederatedAlgorithm:
    settings, lambda_ = job.algorithm, job.model.lambda_
    clip, rate = settings.clip_norm, settings.learning_rate
    return GradientPerturbation(
        model=model,
        lambda_=lambda_,
        lipschitz=model.lipschitz if clip == "auto" else min(clip, model.lipschitz),
        weights=job.parties.weights,
        rounds=job.rounds,
        learning_rate=1 / (model.smoothness + lambda_) if rate == "auto" else rate,
        momentum=settings.momentum,
        average=settings.average,
    )


def _output(job: Job, model: LinearModel, _: Federation | None) -> FederatedAlgorithm:
    clip = job.algorithm.clip_norm
    if clip != "auto":
        raise JobError(
            "Expected algorithm.clip-norm = 'auto' with output-perturbation (its optimum is that "
            f"of the unclipped loss), got {clip}."
        )
    return OutputPerturbation(
        model=model,
        lambda_=job.model.lambda_,
        lipschitz=model.lipschitz,
        weights=job.parties.weights,
        tolerance=job.algorithm.relative_tolerance,
    )


def _network(job: Job, features: int, classes: int) -> Any:
    from parley.server.planning.federated_averaging import network_for  # noqa: PLC0415 - start-up: torch takes a second
    from parley.server.planning.principal_components import model_width  # noqa: PLC0415 - start-up: torch takes a second

    return network_for(job, features=model_width(job, features), classes=classes or 2)


def _averaging(job: Job, model: Any, federation: Federation | None) -> FederatedAlgorithm:
    from parley.server.planning.federated_averaging import federated_algorithm  # noqa: PLC0415 - start-up: torch takes a second

    if federation is None:
        raise JobError("Expected the parties' sizes with fedavg, got none.")
    return federated_algorithm(job, model, federation)


def _plan_averaging(job: Job, algorithm: Any, federation: Federation, run_id: str) -> ReleasePlan:
    from parley.server.planning.federated_averaging import plan_federated  # noqa: PLC0415 - start-up: torch takes a second

    return plan_federated(job, algorithm=algorithm, federation=federation, run_id=run_id)


def _own(job: Job, model: AnyRows, _: Federation | None) -> FederatedAlgorithm:
    try:
        algorithm: FederatedAlgorithm = build_own(
            job.algorithm.kind,
            job.algorithm.settings,
            features=model.features,
            classes=model.classes,
        )
    except OwnAlgorithmError as error:
        raise JobError(str(error)) from error
    return algorithm


PLANNERS: dict[str, Planner] = {
    "gradient-perturbation": Planner(model=_linear_model, algorithm=_gradient, plan=plan_claimed),
    "output-perturbation": Planner(model=_linear_model, algorithm=_output, plan=plan_claimed),
    "fedavg": Planner(model=_network, algorithm=_averaging, plan=_plan_averaging),
}

_OWN = Planner(
    model=lambda _, features, classes: AnyRows(features=features, classes=classes or 2),
    algorithm=_own,
    plan=plan_claimed,
)


def planner_of(kind: str) -> Planner:
    """The planner of a kind in the table, or of one's own algorithm.

    Raises:
        KeyError: neither.
    """
    return _OWN if is_own(kind) else PLANNERS[kind]
