"""The parties of a simulated run: planned before anything is spent, made anew for every stage."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.held_out_counts import learner_of
from parley.client.contract.plan import ReleasePlan
from parley.client.party.block_session import PartyPolicy, PartySession
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.ideal import IdealSum, simulated_parameters
from parley.secure_agg.interface import DropoutPolicy, KeyExchange, SecureSum
from parley.secure_agg.masked import MaskedSum
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.planning.budgets import budgets_of, check_affordable
from parley.server.planning.release import algorithm_for
from parley.server.planning.stages import Stage, rounds_of, spent_before, stages_of
from parley.server.records.progress import Progress
from parley.server.rounds.execute import Finished
from parley.simulations.data.keeping import check_memory
from parley.simulations.data.world import Experiment
from parley.simulations.engine.block_cohort import BlockCohort
from parley.simulations.engine.faults import FaultScript
from parley.simulations.engine.masked_check import MaskedCheck, checked_parties
from parley.simulations.engine.summing import Adding, summed


@dataclass(frozen=True, kw_only=True)
class Parties:
    """All parties of a job, as one block, and what is planned for them.

    Attributes:
        check: the masked protocol, to compare the first sum with; None for none.
    """

    job: Job
    experiment: Experiment
    faults: FaultScript
    stages: tuple[Stage, ...]
    budgets: tuple[DatasetBudget, ...]
    sums: tuple[SecureSum, ...]
    check: MaskedCheck | None
    adding: Adding = summed
    _made: list[tuple[BlockCohort, Experiment]] = field(default_factory=list, init=False)

    @classmethod
    def planned(
        cls, job: Job, experiment: Experiment, faults: FaultScript, adding: Adding = summed
    ) -> Self:
        """What the job releases of these data.

        Raises:
            JobError, CalibrationError, RingTooSmall: the job does not fit them.
        """
        check_memory(job, experiment.block)
        algorithm = algorithm_for(job, experiment.model, experiment.federation)
        _check_adding(job, apart=adding is not summed)
        stages = stages_of(
            job,
            algorithm=algorithm,
            federation=experiment.federation,
            features=experiment.block.features.shape[1],
            components=experiment.components,
        )
        plan = rounds_of(stages).plan
        budgets = budgets_of(job, plan, experiment.fingerprint, experiment.contents)
        check_affordable(job, stages, budgets)
        masked = job.secure_aggregation.backend == "masked"
        return cls(
            job=job,
            experiment=experiment,
            faults=faults,
            stages=stages,
            budgets=budgets,
            sums=tuple(_secure_sum(job, each.plan, faults, masked=masked) for each in stages),
            check=_masked_check(job, plan, faults),
            adding=adding,
        )

    def for_run(self, run_id: str) -> Self:
        """The same under a run's name."""
        return replace(self, stages=tuple(stage.for_run(run_id) for stage in self.stages))

    def cohort(
        self, stage: Stage, algorithm: FederatedAlgorithm, start: Progress
    ) -> AbstractContextManager[BlockCohort]:
        """The parties of a stage (`parley.server.rounds.execute.CohortOf`)."""
        job, learner = self.job, learner_of(algorithm)
        world, rounds = self.experiment.under(learner), stage is rounds_of(self.stages)
        primary = self.budgets[0]
        cohort = BlockCohort(
            session=PartySession(
                block=world.block if learner is algorithm else world.held_out,
                algorithm=algorithm,
                policy=PartyPolicy(
                    budgets={each.unit: (each.epsilon, each.delta) for each in self.budgets},
                    neighbouring=frozenset({primary.neighbouring}),
                ),
                randomness=Randomness(seed=job.seed, party=None),
                before=spent_before(self.stages, start.stage)[primary.unit],
            ),
            secure_sum=self.sums[start.stage],
            faults=self.faults,
            dealing=job.run.deals and job.secure_aggregation.backend != "masked",
            unchecked=not job.secure_aggregation.masked_check,
            check=self.check if rounds else None,
            adding=self.adding,
        )
        cohort.session.answered += start.done
        if rounds:
            self._made.append((cohort, world))
        return nullcontext(cohort)

    def evaluate(self, theta: NDArray[np.float64], number: int) -> dict[str, Any]:
        """A round's figures, where it is one that is looked at."""
        job, (_, world) = self.job, self._made[-1]
        every = world.evaluate_every(job.run.evaluate_every)
        if number != job.rounds and (every == 0 or number % every):
            return {}
        # A model that diverged has no finite loss; the run says so with null, not by stopping.
        return {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in world.evaluate(theta).items()
        }

    def of_rounds(self, finished: Finished) -> tuple[BlockCohort, Experiment]:
        """The parties that made the rounds, and their data."""
        if not self._made:  # the rounds were all made before the run was resumed
            rounds = rounds_of(self.stages)
            at = replace(finished.outcome.progress, stage=self.stages.index(rounds))
            self.cohort(rounds, finished.algorithm, at)
        return self._made[-1]


def _check_adding(job: Job, *, apart: bool) -> None:
    """Refuses to add parties up apart from each other where their bits depend on all of them."""
    if apart and job.secure_aggregation.backend != "ideal":
        raise JobError(
            f"Expected secure-aggregation.backend = 'ideal' with run.engine = {job.run.engine!r}, "
            f"got {job.secure_aggregation.backend!r}."
        )


def _secure_sum(
    job: Job,
    plan: ReleasePlan,
    faults: FaultScript,
    *,
    masked: bool,
    parties: int | None = None,
) -> SecureSum:
    """The sum of a release, over all of its parties or over fewer in proportion."""
    count = parties or plan.parties
    settings: dict[str, Any] = {
        "parties": count,
        "min_survivors": math.ceil(plan.min_survivors * count / plan.parties),
        "ring_bits": plan.encoding.ring_bits,
        "dropouts": DropoutPolicy(job.secure_aggregation.dropouts),
        "confirm_survivors": job.secure_aggregation.confirm_survivors,
        "key_exchange": KeyExchange(job.secure_aggregation.key_exchange),
        "corrupt": job.corrupt * count // plan.parties,
    }
    lost = math.ceil(faults.most * count)
    if count > 100 and lost > count // 10:  # up to 100 the graph is complete
        settings["dropped"] = lost  # The graph's degree must bear what the script takes away.
    try:
        parameters = simulated_parameters(**settings)
        if not masked:
            return IdealSum(parameters)
        return MaskedSum(parameters)
    except ValueError as error:
        raise JobError(f"Secure aggregation: {error}") from error


def _masked_check(job: Job, plan: ReleasePlan, faults: FaultScript) -> MaskedCheck | None:
    settings = job.secure_aggregation
    if settings.backend == "masked" or not settings.masked_check or plan.parties == 1:
        return None
    count = checked_parties(parties=plan.parties, dimension=plan.dimension)
    # Which parties has no bearing on what is released, only on what is looked at.
    chosen = np.sort(np.random.default_rng().choice(plan.parties, count, replace=False))
    masked, ideal = (
        _secure_sum(job, plan, faults, masked=masked, parties=count) for masked in (True, False)
    )
    return MaskedCheck(chosen=chosen, masked=masked, ideal=ideal)
