"""What a network's simulation needs between its plan and its first round."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.plan import ReleasePlan
from parley.client.party.block_session import PartyPolicy, PartySession
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Event
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.interface import SecureSum
from parley.server.jobs.job import Job
from parley.server.planning.principal_components import (
    ReleaseAhead,
    components_event,
    private_components,
    release_ahead,
)
from parley.simulations.data.experiment import Experiment
from parley.simulations.engine.block_cohort import BlockCohort
from parley.simulations.engine.faults import FaultScript

__all__ = ["Prepared", "before_rounds", "components_ahead", "prepare_network"]


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
    return components_event(job, experiment.block.features.shape[1], experiment.federation)


def components_ahead(job: Job, experiment: Experiment, plan: ReleasePlan) -> ReleaseAhead | None:
    """The release of private components; None where the job has none.

    Args:
        plan: of the rounds.
    """
    features = experiment.block.features.shape[1]
    return release_ahead(job, features=features, federation=experiment.federation, rounds=plan)


def prepare_network(
    job: Job,
    *,
    ahead: ReleaseAhead | None,
    experiment: Experiment,
    algorithm: FederatedAlgorithm,
    plan: ReleasePlan,
    dataset: str,
    ledger: Ledger,
    secure_sum: Callable[[ReleasePlan], SecureSum],
    faults: FaultScript,
) -> Prepared:
    """The experiment with its components and baseline, and what was charged before round 1.

    Anything but federated averaging is handed back as it is.

    Args:
        ahead: what is released before the rounds (`components_ahead`).
        plan: of the rounds.
        secure_sum: a release's plan → the sum that its contributions go through.
        faults: who drops out or declines; the components' release is their round 0.

    Raises:
        BudgetExceeded: the ledger refuses the components' release; nothing was spent.
        TooFewSurvivors: too few parties bear that release; nothing was spent.
    """
    if job.algorithm.kind != "fedavg":
        return Prepared(experiment=experiment, algorithm=algorithm)
    # Imported here: networks need torch, linear models do not.
    from parley.client.algorithms.federated_averaging import FederatedAveraging
    from parley.simulations.data.network_experiment import NetworkExperiment, project

    if not isinstance(experiment, NetworkExperiment) or not isinstance(
        algorithm, FederatedAveraging
    ):
        raise TypeError("Expected a network's experiment and algorithm, got others.")
    before = Composition.empty()
    told: dict[str, Any] = {}
    if ahead is not None:
        before = before.add(ahead.plan.event(ahead.plan.primary.unit))
        block, moments, release = experiment.block, ahead.moments, ahead.plan

        def cohort() -> AbstractContextManager[BlockCohort]:
            policy = PartyPolicy(
                # The ledger charges it.
                budgets={release.primary.unit: (math.inf, release.primary.delta)},
                neighbouring=frozenset({plan.primary.neighbouring}),
            )
            return nullcontext(
                BlockCohort(
                    session=PartySession(block=block, algorithm=moments, policy=policy),
                    secure_sum=secure_sum(release),
                    faults=faults,
                    evaluate_model=lambda _theta, _round: {},
                )
            )

        components, told = private_components(
            job,
            ahead=ahead,
            algorithm=algorithm,
            dataset=dataset,
            ledger=ledger,
            cohort=cohort,
        )
        experiment = replace(experiment, components=components)
    if experiment.components is not None:
        algorithm = replace(algorithm, components=experiment.components)
        experiment = project(experiment, experiment.components)
    return Prepared(
        experiment=replace(experiment, algorithm=algorithm),
        algorithm=algorithm,
        before=before,
        components=told,
    )
