"""What a network's simulation needs between its plan and its first round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from client.algorithms import FederatedAlgorithm
from client.plan import ReleasePlan
from privacy.events import Composition, Event
from privacy.ledger import Ledger
from secure_agg.interface import SecureSum
from server.job import Job
from simulations.experiment import Experiment
from simulations.faults import FaultScript

__all__ = ["Prepared", "before_rounds", "prepare_network"]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What the rounds start from.

    Attributes:
        experiment, algorithm: with components and baseline.
        before: what was charged before round 1.
        components: parties and traffic of the components' release; empty where there was none.
    """

    experiment: Experiment
    algorithm: FederatedAlgorithm
    before: Composition = field(default_factory=Composition.empty)
    components: dict[str, Any] = field(default_factory=dict)


def before_rounds(job: Job, experiment: Experiment) -> Event | None:
    """What the job releases ahead of its rounds: private components, else None."""
    if job.model.kind != "pca-mlp":
        return None
    # Imported here: networks need torch, linear models do not.
    from simulations.components import components_event

    return components_event(job, experiment.block.features.shape[1])


def prepare_network(
    job: Job,
    *,
    experiment: Experiment,
    algorithm: FederatedAlgorithm,
    plan: ReleasePlan,
    dataset: str,
    ledger: Ledger,
    secure_sum: Callable[[int], SecureSum],
    faults: FaultScript,
) -> Prepared:
    """The experiment with its components and baseline, and what was charged before round 1.

    Anything but federated averaging is handed back as it is.

    Raises:
        BudgetExceeded: the ledger refuses the components' release; nothing was spent.
        TooFewSurvivors: too few parties bear that release; nothing was spent.
    """
    if job.algorithm.kind != "fedavg":
        return Prepared(experiment=experiment, algorithm=algorithm)
    # Imported here: networks need torch, linear models do not.
    from client.federated import FederatedAveraging
    from simulations.components import with_private_components
    from simulations.network_experiment import NetworkExperiment

    if not isinstance(experiment, NetworkExperiment) or not isinstance(
        algorithm, FederatedAveraging
    ):
        raise TypeError("Expected a network's experiment and algorithm, got others.")
    before = Composition.empty()
    told: dict[str, Any] = {}
    charged = before_rounds(job, experiment)
    if charged is not None:
        before = before.add(charged)
        experiment, algorithm, told = with_private_components(
            job,
            experiment=experiment,
            algorithm=algorithm,
            plan=plan,
            dataset=dataset,
            ledger=ledger,
            secure_sum=secure_sum,
            faults=faults,
        )
    elif experiment.components is not None:
        algorithm = replace(algorithm, components=experiment.components)
    return Prepared(
        experiment=replace(experiment, algorithm=algorithm),
        algorithm=algorithm,
        before=before,
        components=told,
    )
