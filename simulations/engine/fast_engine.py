"""The fast engine: all parties of a job as one block, in this process.

What it leaves behind is a run folder like any other engine's; what only a simulation can know
(loss, accuracy, the non-private baseline) is marked so wherever it is written.

Also here: the parties of a simulated run: planned before anything is spent, made anew for every
stage.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.held_out_counts import learner_of
from parley.client.contract.release_plan import ReleasePlan
from parley.client.party.party_session import PartySession
from parley.client.party.plan_policy import PartyPolicy
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.ideal_sum import IdealSum, simulated_parameters
from parley.secure_agg.in_process import MaskedSum
from parley.secure_agg.interface import SecureSum
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import budgets_of, check_affordable
from parley.server.planning.run_stages import Stage, rounds_of, spent_before
from parley.server.planning.stage_planner import plan_stages
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import Progress
from parley.server.records.run_result import Run
from parley.server.rounds.run_execution import Finished, execute, keep, summary_of
from parley.server.rounds.run_observer import Observer, tell_stage
from parley.simulations.data.experiment import load_experiment
from parley.simulations.data.row_cache import check_memory, data_mib, peak_mib
from parley.simulations.data.simulated_world import Experiment
from parley.simulations.engine.fault_script import FaultScript, parse_faults
from parley.simulations.engine.in_process_cohort import BlockCohort, MaskedCheck, checked_parties
from parley.simulations.engine.streamed_sum import Adding, summed
from parley.simulations.metrics.local_summary import dp_sgd_facts, with_simulated_figures
from parley.simulations.metrics.synthetic_quality import with_table_figures

if TYPE_CHECKING:
    from parley.simulations.audit.self_audit import Canaries


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
        _check_adding(job, apart=adding is not summed)
        _, stages = plan_stages(
            job,
            experiment.model,
            federation=experiment.federation,
            features=experiment.block.features.shape[1],
            components=experiment.components,
        )
        plan = rounds_of(stages).plan
        data = experiment.data
        budgets = budgets_of(job, plan, data.fingerprint, data.contents, data.row_digests)
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
        """The parties of a stage (`parley.server.rounds.run_execution.CohortOf`)."""
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


def simulate(
    job: Job | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
    version: str = "",
    canaries: int = 0,
    load: Callable[[Job], Experiment] = load_experiment,
    adding: Adding = summed,
) -> Run:
    """Runs a job, or continues the run in `resume`, with its canaries if it had any.

    Raises:
        JobError, DataError, CalibrationError, RingTooSmall, RunFolderError: the input is wrong;
            nothing was spent.
        BudgetExceeded: the ledger has no room for all the rounds; nothing was spent.
        TooFewSurvivors: too few parties for the components' release; nothing was spent, and the
            folder can be resumed.
        KeyboardInterrupt: stopped between two commits; the folder can be resumed.
    """
    began = time.perf_counter()
    folder: RunFolder | None = None
    if resume is not None:
        folder, job = RunFolder.open(resume)
    if job is None:
        raise JobError("Expected a job or a run to resume, got neither.")
    coins = _coins(job, canaries) if folder is None else folder.coins
    faults = parse_faults(job.run.faults, seed=job.seed or 0)
    tell_stage(observer, "reading")
    experiment = load(job)
    tell_stage(observer, "preparing")
    job = job.settled(experiment.federation, experiment.data.classes)
    if folder is not None and folder.schema not in {"", experiment.data.schema}:
        raise JobError(
            f"Expected the schema that {folder.path.name} was begun with (its schema.toml), got "
            "another."
        )
    hidden = None
    if coins:
        from parley.simulations.audit.self_audit import planted  # noqa: PLC0415 - start-up: `run` without a planted fault (scipy.stats takes .5 s)

        experiment, hidden = planted(job, experiment, coins["canaries"], seed=coins["seed"])
    # Planned before the folder is made: a job that cannot run leaves nothing behind.
    planned = Parties.planned(job, experiment, faults, adding)
    folder = folder or RunFolder.create(job, out)
    folder.keep_schema(experiment.data.schema)
    folder.keep_coins(coins)
    parties = planned.for_run(folder.run_id)
    finished = execute(
        parties.stages,
        job=job,
        cohort_of=parties.cohort,
        budgets=parties.budgets,
        folder=folder,
        observer=observer,
        evaluate=parties.evaluate,
    )
    return _kept(
        finished, parties, hidden, folder=folder, began=began, version=version, observer=observer
    )


def _kept(
    finished: Finished,
    parties: Parties,
    hidden: Canaries | None,
    *,
    folder: RunFolder,
    began: float,
    version: str,
    observer: Observer | None,
) -> Run:
    """The files of a run that ended, with what only a simulation may know."""
    job, theta = parties.job, finished.theta
    cohort, world = parties.of_rounds(finished)
    summary = summary_of(
        finished,
        parties.stages,
        job=job,
        folder=folder,
        secure_sum={"backend": cohort.secure_sum.name, "masked_check": cohort.checked},
        began=began,
        engine=job.run.engine if job.run.in_process else "fast",
        version=version,
        labels=world.data.label_names,
    )
    dp_sgd = dp_sgd_facts(
        rounds_of(parties.stages).plan,
        answered=cohort.session.answered,
        records=world.block.sizes,
        before=cohort.session.before,
        precision=job.dp_sgd.precision,
        device=str(getattr(world.model, "device", "cpu")),
    )
    summary = summary.adding(peak_mib=peak_mib(), data_mib=data_mib(world.block), dp_sgd=dp_sgd)
    summary, tensors = keep(
        finished, job=job, folder=folder, summary=summary, features=world.data.features
    )
    # The model is on disk. What follows is optional: a stop in it loses nothing.
    tell_stage(observer, "baseline")
    summary = with_simulated_figures(summary, job=job, experiment=world, theta=theta, dp_sgd=dp_sgd)
    if hidden is not None:
        # Rounds count alike in the last iterate, not in a mean of them. Either is covered: every
        # round's noisy sum is what is charged.
        last = finished.outcome.progress.state.get("theta", theta)
        found = hidden.bounds(world.model, last, delta=summary.primary.delta)
        summary = summary.adding(self_audit=found)
    if summary.synthetic is not None:
        summary = with_table_figures(
            summary, summary.synthetic, finished.algorithm, job.algorithm, tensors, world
        )
    folder.write_summary(summary)
    return Run(summary=summary, folder=folder.path, theta=theta)


def _coins(job: Job, canaries: int) -> dict[str, int]:
    """How many canaries, and the seed of their directions and coins: nothing of the noise's."""
    if not canaries:
        return {}
    seed = secrets.randbits(64) if job.seed is None else job.seed
    return {"canaries": canaries, "seed": seed}
