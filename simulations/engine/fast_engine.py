"""Run a job with all its parties as one block in this process.

It leaves a run folder like every engine. What only a simulation can know (loss, accuracy, the
non-private baseline) is marked as such wherever it is written.

`InProcessParties` are the parties of a simulated run: planned before anything is spent, opened
again for every stage.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import get_learner
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.reading_progress import watch_reading
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.ideal_sum import IdealSum, build_simulated_parameters
from parley.secure_agg.in_process_protocol import MaskedSum
from parley.secure_agg.interface import SecureSum
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import build_budgets
from parley.server.planning.run_stages import RunStage, compute_spent, get_rounds_stage
from parley.server.planning.stage_planner import check_cost, plan_stages
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import RunProgress
from parley.server.records.run_result import RunResult
from parley.server.records.summary_builder import FinishedRun, build_run_summary
from parley.server.rounds.run_execution import execute_run, save_results
from parley.server.rounds.run_observer import Observer, tell_rows, tell_stage
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.memory_check import check_memory, compute_data_mib, get_peak_mib
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.engine.fault_script import FaultScript, parse_faults
from parley.simulations.engine.in_process_cohort import (
    BlockCohort,
    MaskedCheck,
    count_checked_parties,
)
from parley.simulations.engine.streamed_sum import SumFunction, sum_parties
from parley.simulations.engine.sum_parameters import build_sum_error, choose_sum_settings
from parley.simulations.metrics.simulated_metrics import add_simulated_metrics, build_dp_sgd_facts

if TYPE_CHECKING:
    from parley.simulations.audit.canary_audit import InsertedCanaries


@dataclass(frozen=True, kw_only=True)
class InProcessParties:
    """All parties of a job, as one block, with their plan.

    Attributes:
        check: the masked protocol, to compare the first sum with; None for no check.
    """

    job: Job
    experiment: Experiment
    faults: FaultScript
    stages: tuple[RunStage, ...]
    budgets: tuple[DatasetBudget, ...]
    sums: tuple[SecureSum, ...]
    check: MaskedCheck | None
    sum_function: SumFunction = sum_parties
    _cohorts: list[tuple[BlockCohort, Experiment]] = field(default_factory=list, init=False)

    @classmethod
    def from_job(
        cls,
        job: Job,
        experiment: Experiment,
        faults: FaultScript,
        adding: SumFunction = sum_parties,
    ) -> Self:
        """Plan the releases of a job on these data.

        Raises:
            JobError, CalibrationError, RingTooSmall: the job does not fit them.
        """
        check_memory(job, experiment.block)
        _, stages = plan_stages(job, experiment.plan_inputs)
        plan = get_rounds_stage(stages).plan
        data = experiment.data
        budgets = build_budgets(job, plan, data.fingerprint, data.contents, data.row_digests)
        check_cost(job, stages, budgets, experiment.plan_inputs)
        masked = job.secure_aggregation.backend == "masked"
        return cls(
            job=job,
            experiment=experiment,
            faults=faults,
            stages=stages,
            budgets=budgets,
            sums=tuple(_build_secure_sum(job, each.plan, faults, masked=masked) for each in stages),
            check=_build_masked_check(job, plan, faults),
            sum_function=adding,
        )

    def bind_run(self, run_id: str) -> Self:
        """Return the same parties under a run's name."""
        return replace(self, stages=tuple(stage.with_run_id(run_id) for stage in self.stages))

    def open_cohort(
        self, stage: RunStage, algorithm: FederatedAlgorithm, start: RunProgress
    ) -> AbstractContextManager[BlockCohort]:
        """Open the cohort of a stage (`parley.server.rounds.run_execution.BuildCohort`)."""
        job, learner = self.job, get_learner(algorithm)
        world = self.experiment.bind_algorithm(learner)
        rounds = stage is get_rounds_stage(self.stages)
        primary = self.budgets[0]
        before = compute_spent(self.stages, [each.rounds for each in self.stages[: start.stage]])
        cohort = BlockCohort(
            session=PartySession(
                block=world.block if learner is algorithm else world.held_out,
                algorithm=algorithm,
                rules=RefusalRules(
                    units=frozenset(each.unit for each in self.budgets),
                    neighbouring=frozenset({primary.neighbouring}),
                ),
                randomness=Randomness(seed=job.seed, party=None),
                spent_before=before[primary.unit],
            ),
            secure_sum=self.sums[start.stage],
            faults=self.faults,
            central_noise=job.run.draws_central_noise
            and job.secure_aggregation.backend != "masked",
            unchecked=not job.secure_aggregation.masked_check,
            check=self.check if rounds else None,
            sum_function=self.sum_function,
        )
        cohort.session.answered_releases += start.done
        if rounds:
            self._cohorts.append((cohort, world))
        return nullcontext(cohort)

    def evaluate(self, theta: NDArray[np.float64], number: int) -> dict[str, Any]:
        """Return a round's metrics, if the round is to be evaluated."""
        job, (_, world) = self.job, self._cohorts[-1]
        every = world.evaluate_every(job.run.evaluate_every)
        if number != job.rounds and (every == 0 or number % every):
            return {}
        # A diverged model has no finite loss: report null instead of stopping the run.
        found = world.evaluate(theta).items()
        return {name: value if math.isfinite(value or 0.0) else None for name, value in found}

    def get_round_cohort(self, finished: FinishedRun) -> tuple[BlockCohort, Experiment]:
        """Return the cohort of the rounds, and its data."""
        if not self._cohorts:  # All rounds were run before the run was resumed.
            rounds = get_rounds_stage(self.stages)
            at = replace(finished.progress, stage=self.stages.index(rounds))
            self.open_cohort(rounds, finished.algorithm, at)
        return self._cohorts[-1]


def _build_secure_sum(
    job: Job, plan: ReleasePlan, faults: FaultScript, *, masked: bool, parties: int | None = None
) -> SecureSum:
    """Build the sum of a release, over all of its parties or proportionally over fewer."""
    settings = choose_sum_settings(job, plan, faults, parties=parties)
    try:
        parameters = build_simulated_parameters(**settings)
        return IdealSum(parameters) if not masked else MaskedSum(parameters)
    except ValueError as error:
        raise build_sum_error(error) from error


def _build_masked_check(job: Job, plan: ReleasePlan, faults: FaultScript) -> MaskedCheck | None:
    settings = job.secure_aggregation
    if settings.backend == "masked" or not settings.masked_check or plan.parties == 1:
        return None
    count = count_checked_parties(parties=plan.parties, dimension=plan.dimension)
    # The choice of parties affects only the check, not what is released.
    chosen = np.sort(np.random.default_rng().choice(plan.parties, count, replace=False))
    build = partial(_build_secure_sum, job, plan, faults, parties=count)
    masked, ideal = build(masked=True), build(masked=False)
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
    adding: SumFunction = sum_parties,
) -> RunResult:
    """Run a job, or resume the run in `resume`, with its canaries if it had any.

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
        from parley.server.records.run_folder_opening import open_run_folder  # noqa: PLC0415 - spares its code for a new run

        folder, job = open_run_folder(resume)
    if job is None:
        raise JobError("Expected a job or a run to resume, got neither.")
    coins = _choose_canary_settings(job, canaries) if folder is None else folder.coins
    faults = parse_faults(job.run.faults, seed=job.seed or 0)
    tell_stage(observer, "reading")
    with watch_reading(partial(tell_rows, observer)):
        experiment = load(job)
    tell_stage(observer, "preparing")
    job = job.resolve_auto(experiment.federation, experiment.data.classes)
    if folder is not None and folder.schema not in {"", experiment.data.schema}:
        began_with = f"{folder.path.name} began with (its schema.toml)"
        raise JobError(f"Expected the schema that {began_with}, got another.")
    hidden = None
    if coins:
        from parley.simulations.audit.canary_audit import insert_canaries  # noqa: PLC0415 - start-up: `run` without a planted fault (scipy.stats takes .5 s)

        experiment, hidden = insert_canaries(job, experiment, coins["canaries"], seed=coins["seed"])
    # Plan before the folder is created: a job that cannot run leaves nothing behind.
    planned = InProcessParties.from_job(job, experiment, faults, adding)
    folder = folder or RunFolder.create(job, out)
    folder.save_schema(experiment.data.schema)
    folder.save_coins(coins)
    parties = planned.bind_run(folder.run_id)
    finished = execute_run(
        parties.stages,
        job=job,
        build_cohort=parties.open_cohort,
        budgets=parties.budgets,
        folder=folder,
        observer=observer,
        evaluate=parties.evaluate,
    )
    return _save_run(
        finished, parties, hidden, folder=folder, began=began, version=version, observer=observer
    )


def _save_run(
    finished: FinishedRun,
    parties: InProcessParties,
    hidden: InsertedCanaries | None,
    *,
    folder: RunFolder,
    began: float,
    version: str,
    observer: Observer | None,
) -> RunResult:
    """Write the files of a run that ended, with what only a simulation may know."""
    job, theta = parties.job, finished.theta
    cohort, world = parties.get_round_cohort(finished)
    summary = build_run_summary(
        finished,
        job=job,
        folder=folder,
        secure_sum={"backend": cohort.secure_sum.name, "masked_check": cohort.checked},
        began=began,
        engine=job.run.engine if job.run.in_process else "fast",
        version=version,
        labels=world.data.label_names,
    )
    dp_sgd = build_dp_sgd_facts(
        get_rounds_stage(parties.stages).plan,
        answered=cohort.session.answered_releases,
        records=world.block.sizes,
        before=cohort.session.spent_before,
        model=world.model,
    )
    memory = {"peak_mib": get_peak_mib(), "data_mib": compute_data_mib(world.block)}
    summary = summary.with_fields(dp_sgd=dp_sgd, **memory)
    summary, tensors = save_results(
        finished, job=job, folder=folder, summary=summary, features=world.data.features
    )
    # The model is on disk. The rest is optional: a stop loses nothing.
    tell_stage(observer, "baseline" if job.run.baseline else "measuring")
    summary = add_simulated_metrics(summary, job=job, experiment=world, theta=theta, dp_sgd=dp_sgd)
    if hidden is not None:
        # All rounds count equally in the last iterate, but not in a mean of iterates. Both are
        # covered: every round's noisy sum is charged.
        last = finished.progress.state.get("theta", theta)
        found = hidden.compute_bounds(world.model, last, delta=summary.primary.delta)
        summary = summary.with_fields(self_audit=found)
    if summary.synthetic is not None:
        from parley.simulations.metrics.synthetic_quality import add_table_metrics  # noqa: PLC0415 - most jobs make no synthetic rows

        summary = add_table_metrics(
            summary, summary.synthetic, finished.algorithm, job.algorithm, tensors, world
        )
    folder.write_summary(summary)
    return RunResult(summary=summary, folder=folder.path, theta=theta)


def _choose_canary_settings(job: Job, canaries: int) -> dict[str, int]:
    """Return the number of canaries, and a seed for directions and coins, not for noise."""
    if not canaries:
        return {}
    seed = secrets.randbits(64) if job.seed is None else job.seed
    return {"canaries": canaries, "seed": seed}
