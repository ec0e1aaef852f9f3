"""What the server adds to an algorithm's row: from a job to its model and algorithm.

Keyed as `parley.client.algorithms.registry.ALGORITHMS` is. Second moments are no job's: they are a
release ahead of another algorithm's rounds (`parley.server.planning.principal_components`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.objective_perturbation import (
    ObjectivePerturbationOfParties,
    output_share,
)
from parley.client.algorithms.output_perturbation import OutputPerturbation
from parley.client.algorithms.own import AnyRows, OwnAlgorithmError, build_own, is_own
from parley.client.algorithms.pathak import PathakAveraging
from parley.client.algorithms.rajkumar_agarwal import RajkumarAgarwal
from parley.client.models.class_weights import weighted
from parley.client.models.linear import LinearModel
from parley.client.models.loss import Loss
from parley.client.models.losses import HuberSVM, Logistic, Softmax, SquaredLoss
from parley.client.models.own_code import function_named
from parley.client.models.own_losses import OwnLoss, OwnResidualLoss, tabled
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.mechanisms.objective import objective_noise
from parley.server.jobs import algorithm as jobs_algorithm
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.planning.federation import Federation
from parley.server.planning.marginals import pair_tables
from parley.server.planning.principal_components import model_width
from parley.server.planning.random_features import random_features

Parties = Federation | None


@dataclass(frozen=True, kw_only=True)
class Planner:
    """How the server makes one kind of algorithm.

    Attributes:
        model: job, columns of the records, K → what is learned. Raises JobError.
        algorithm: job, its `[algorithm]`, model, the parties' public facts → the algorithm.
            Raises JobError, CalibrationError.
    """

    model: Callable[[Job, int, int], Any]
    algorithm: Callable[[Job, Any, Any, Parties], FederatedAlgorithm]


def _linear_model(job: Job, features: int, classes: int) -> LinearModel:
    plain = _LOSSES[job.model.kind](job.model, classes)
    try:
        loss = weighted(plain, job.model.weights_of_classes)
    except ValueError as error:
        raise JobError(f"model.class-weights: {error}") from error
    return LinearModel(loss=loss, features=features + job.model.has_intercept)


def _own_loss(kind: type[OwnLoss] | type[OwnResidualLoss]) -> Callable[[Any, int], Loss]:
    def made(own: Any, classes: int) -> Loss:
        del classes
        try:
            function = function_named(own.loss, what="loss")
            return tabled(kind, function, lipschitz=own.lipschitz, steeper=own.steeper)
        except ValueError as error:
            remedy = " (model.steeper = 'clip' clips them)" if "as stated" in str(error) else ""
            raise JobError(f"model.loss = {own.loss!r}: {error}{remedy}") from error

    return made


_LOSSES: dict[str, Callable[[Any, int], Loss]] = {
    "logistic": lambda _, classes: Logistic(),
    "softmax": lambda _, classes: Softmax(classes=classes),
    "ridge": lambda own, _: SquaredLoss(radius=own.radius, label_bound=own.label_bound),
    "huber-svm": lambda own, _: HuberSVM(width=own.huber_width),
    "own-loss": _own_loss(OwnLoss),
    "own-residual-loss": _own_loss(OwnResidualLoss),
}
"""`model.kind` → the loss, of the section's settings and K."""


def _gradient(
    job: Job, settings: jobs_algorithm.GradientPerturbation, model: LinearModel, _: Parties
) -> FederatedAlgorithm:
    return GradientPerturbation(**_steps(job, settings, model))


def _steps(
    job: Job, settings: jobs_algorithm.GradientPerturbation, model: LinearModel
) -> dict[str, Any]:
    lambda_ = job.model.regularisation
    clip, rate = settings.clip_norm, settings.learning_rate
    return {
        "model": model,
        "lambda_": lambda_,
        "lipschitz": model.lipschitz if clip == "auto" else min(clip, model.lipschitz),
        "weights": job.parties.weights,
        "rounds": job.rounds,
        "learning_rate": 1 / (model.smoothness + lambda_) if rate == "auto" else rate,
        "momentum": settings.momentum,
        "nesterov": settings.nesterov,
        "average": settings.average,
        "neighbouring": Neighbouring(job.privacy.neighbouring),
    }


def _rajkumar(
    job: Job, settings: jobs_algorithm.RajkumarAgarwal, model: LinearModel, parties: Parties
) -> FederatedAlgorithm:
    if parties is None:
        raise JobError("Expected the parties' sizes with rajkumar-agarwal, got none.")
    records = parties.total_records
    noise = objective_noise(
        epsilon=job.privacy.epsilon,
        records=records,
        lambda_=job.model.regularisation,
        curvature=model.smoothness,
    )
    return RajkumarAgarwal(
        **_steps(job, settings, model),
        tilt_scale=noise.scale / records,
        tilt_seed=job.seed or 0,
    )


def _output(
    job: Job, settings: jobs_algorithm.OutputPerturbation, model: LinearModel, _: Parties
) -> FederatedAlgorithm:
    return OutputPerturbation(**_optima(job, settings, model))


def _pathak(
    job: Job, settings: jobs_algorithm.Pathak, model: LinearModel, _: Parties
) -> FederatedAlgorithm:
    return PathakAveraging(**_optima(job, settings, model))


def _objective(
    job: Job, settings: jobs_algorithm.ObjectivePerturbation, model: LinearModel, _: Parties
) -> FederatedAlgorithm:
    share = output_share(settings.relative_tolerance)
    return ObjectivePerturbationOfParties(
        **_optima(job, settings, model), objective_epsilon=job.privacy.epsilon * (1 - share)
    )


def _optima(
    job: Job, settings: jobs_algorithm.OutputPerturbation, model: LinearModel
) -> dict[str, Any]:
    return {
        "model": model,
        "lambda_": job.model.regularisation,
        "lipschitz": model.lipschitz,
        "weights": job.parties.weights,
        "relative_tolerance": settings.relative_tolerance,
    }


def _network(job: Job, features: int, classes: int) -> Any:
    from parley.server.planning.federated_averaging import network_for  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    return network_for(job, features=model_width(job, features), classes=classes or 2)


def _averaging(
    job: Job, rounds: jobs_algorithm.FederatedAveraging, model: Any, federation: Parties
) -> FederatedAlgorithm:
    from parley.server.planning.federated_averaging import federated_algorithm  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    if federation is None:
        raise JobError("Expected the parties' sizes with fedavg, got none.")
    return federated_algorithm(job, rounds, model, federation)


def _distributed(
    job: Job, rounds: jobs_algorithm.DistributedDPSGD, model: Any, federation: Parties
) -> FederatedAlgorithm:
    from parley.server.planning.distributed_dp_sgd import distributed_algorithm  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    if federation is None:
        raise JobError("Expected the parties' sizes with distributed-dp-sgd, got none.")
    return distributed_algorithm(job, rounds, model, federation)


def _any_rows(_: Job, features: int, classes: int) -> AnyRows:
    return AnyRows(features=features, classes=classes or 2)


def _own(
    job: Job, settings: jobs_algorithm.OwnAlgorithm, model: AnyRows, _: Parties
) -> FederatedAlgorithm:
    try:
        algorithm: FederatedAlgorithm = build_own(
            job.algorithm.kind,
            settings.settings,
            features=model.features,
            classes=model.classes,
        )
    except OwnAlgorithmError as error:
        raise JobError(str(error)) from error
    return algorithm


PLANNERS: dict[str, Planner] = {
    "gradient-perturbation": Planner(model=_linear_model, algorithm=_gradient),
    "output-perturbation": Planner(model=_linear_model, algorithm=_output),
    "objective-perturbation": Planner(model=_linear_model, algorithm=_objective),
    "pathak": Planner(model=_linear_model, algorithm=_pathak),
    "rajkumar-agarwal": Planner(model=_linear_model, algorithm=_rajkumar),
    "fedavg": Planner(model=_network, algorithm=_averaging),
    "distributed-dp-sgd": Planner(model=_network, algorithm=_distributed),
    "marginals": Planner(model=_any_rows, algorithm=pair_tables),
    "random-features": Planner(model=_any_rows, algorithm=random_features),
}

_OWN = Planner(
    model=_any_rows,
    algorithm=_own,
)


def planner_of(kind: str) -> Planner:
    """The planner of a kind in the table, or of your own algorithm.

    Raises:
        KeyError: neither.
    """
    return _OWN if is_own(kind) else PLANNERS[kind]
