"""What a network's simulation needs between its plan and its first round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from client.algorithms import FederatedAlgorithm
from client.plan import ReleasePlan
from privacy.events import Composition
from privacy.ledger import Ledger
from secure_agg.interface import SecureSum
from server.job import Job
from simulations.experiment import Experiment

__all__ = ["prepare_network"]


def prepare_network(
    job: Job,
    *,
    experiment: Experiment,
    algorithm: FederatedAlgorithm,
    plan: ReleasePlan,
    dataset: str,
    ledger: Ledger,
    secure_sum: Callable[[int], SecureSum],
) -> tuple[Experiment, FederatedAlgorithm, Composition]:
    """The experiment with its components and baseline, and what was charged before round 1.

    Anything but federated averaging is handed back as it is.

    Raises:
        BudgetExceeded: the ledger refuses the components' release; nothing was spent.
    """
    if job.algorithm.kind != "fedavg":
        return experiment, algorithm, Composition.empty()
    # Imported here: networks need torch, linear models do not.
    from client.federated import FederatedAveraging
    from simulations.components import components_event, with_private_components
    from simulations.network_experiment import NetworkExperiment

    if not isinstance(experiment, NetworkExperiment) or not isinstance(
        algorithm, FederatedAveraging
    ):
        raise TypeError("Expected a network's experiment and algorithm, got others.")
    before = Composition.empty()
    charged = components_event(job, experiment.block.features.shape[1])
    if charged is not None:
        before = before.add(charged)
        experiment, algorithm = with_private_components(
            job,
            experiment=experiment,
            algorithm=algorithm,
            plan=plan,
            dataset=dataset,
            ledger=ledger,
            secure_sum=secure_sum,
        )
    elif experiment.components is not None:
        algorithm = replace(algorithm, components=experiment.components)
    return replace(experiment, algorithm=algorithm), algorithm, before
