"""The fast engine: all parties of a job as one block, in this process.

What it leaves behind is a run folder like any other engine's; what only a simulation can know
(loss, accuracy, the non-private baseline) is marked so wherever it is written.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.held_out_counts import learner_of
from parley.client.contract.plan import ReleasePlan
from parley.client.party.block_session import PartyPolicy, PartySession
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.ideal import IdealSum, simulated_parameters
from parley.secure_agg.interface import DropoutPolicy, KeyExchange, SecureSum
from parley.secure_agg.masked import MaskedSum
from parley.server.jobs.job import Job, JobError
from parley.server.planning.budgets import budgets_of, check_affordable
from parley.server.planning.release import algorithm_for
from parley.server.planning.stages import (
    COMPONENTS,
    Stage,
    made_beside,
    rounds_of,
    spent_before,
    stages_of,
)
from parley.server.records.data_budgets import data_accounts
from parley.server.records.evaluation import evaluation_facts, with_names
from parley.server.records.progress import Progress
from parley.server.records.run import Run
from parley.server.records.run_folder import RunFolder
from parley.server.records.summarising import run_summary
from parley.server.rounds.execute import execute
from parley.server.rounds.keeping import keep
from parley.server.rounds.observer import Observer
from parley.simulations.data.experiment import load_experiment
from parley.simulations.data.world import Experiment
from parley.simulations.engine.block_cohort import BlockCohort
from parley.simulations.engine.faults import FaultScript, parse_faults
from parley.simulations.engine.masked_check import MaskedCheck, checked_parties
from parley.simulations.figures.dp_sgd_summary import dp_sgd_facts
from parley.simulations.figures.summary import with_simulated_figures
from parley.simulations.figures.synthetic import with_table_figures

__all__ = ["Observer", "simulate"]


def simulate(
    job: Job | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
    version: str = "",
    canaries: int = 0,
    load: Callable[[Job], Experiment] = load_experiment,
) -> Run:
    """Runs a job, or continues the run in `resume`, with its canaries if it had any.

    Args:
        canaries: extra records by which the run audits itself
            (`parley.simulations.audit.self_audit`).
        load: from the job to its data.

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
    faults = parse_faults(job.run.faults, seed=job.seed or 0)
    experiment = load(job)
    if folder is not None and folder.schema not in {"", experiment.schema}:
        raise JobError(
            f"Expected the schema that {folder.path.name} was begun with (its schema.toml), got "
            "another."
        )
    coins = _coins(job, canaries) if folder is None else folder.coins
    hidden = None
    if coins:
        from parley.simulations.audit.self_audit import planted  # noqa: PLC0415 - start-up: scipy, for such runs alone

        experiment, hidden = planted(job, experiment, coins["canaries"], seed=coins["seed"])
    # The plans are made before the folder: a job that cannot run leaves nothing behind.
    drafts = stages_of(
        job,
        algorithm=algorithm_for(job, experiment.model, experiment.federation),
        federation=experiment.federation,
        features=experiment.block.features.shape[1],
        components=experiment.components,
    )
    plan = rounds_of(drafts).plan
    budgets = budgets_of(job, plan, experiment.fingerprint, experiment.contents)
    check_affordable(job, drafts, budgets)
    masked = job.secure_aggregation.backend == "masked"
    sums = [_secure_sum(job, each.plan, faults, masked=masked) for each in drafts]
    check = _masked_check(job, plan, faults)
    folder = folder or RunFolder.create(job, out)
    folder.keep_schema(experiment.schema)
    folder.keep_coins(coins)
    stages = tuple(stage.for_run(folder.run_id) for stage in drafts)
    rounds = rounds_of(stages)
    made: list[tuple[BlockCohort, Experiment]] = []  # of the rounds

    def cohort_of(
        stage: Stage, algorithm: FederatedAlgorithm, start: Progress
    ) -> AbstractContextManager[BlockCohort]:
        world = experiment.under(learner_of(algorithm))
        cohort = BlockCohort(
            session=PartySession(
                block=world.block if learner_of(algorithm) is algorithm else world.held_out,
                algorithm=algorithm,
                policy=PartyPolicy(
                    budgets={each.unit: (each.epsilon, each.delta) for each in budgets},
                    neighbouring=frozenset({budgets[0].neighbouring}),
                ),
                randomness=Randomness(seed=job.seed, party=None),
                before=spent_before(stages, start.stage)[budgets[0].unit],
            ),
            secure_sum=sums[start.stage],
            faults=faults,
            evaluate_model=_evaluator(job, world),
            dealing=job.run.deals and not masked,
            unchecked=not job.secure_aggregation.masked_check,
            check=check if stage is rounds else None,
        )
        cohort.session.answered += start.done
        if stage is rounds:
            made.append((cohort, world))
        return nullcontext(cohort)

    finished = execute(
        stages,
        job=job,
        cohort_of=cohort_of,
        budgets=budgets,
        folder=folder,
        resume=resume is not None,
        observer=observer,
    )
    outcome, theta, plan = finished.outcome, finished.theta, rounds.plan
    if not made:  # the rounds were all made before it was resumed
        at = replace(outcome.progress, stage=stages.index(rounds))
        cohort_of(rounds, finished.algorithm, at)
    cohort, world = made[-1]
    summary = run_summary(
        job=job,
        plan=plan,
        outcome=outcome,
        secure_sum={"backend": cohort.secure_sum.name, "masked_check": cohort.checked},
        folder=folder,
        ledger_head={"records": finished.head.records, "hash": finished.head.hash},
        version=version,
        seconds=time.perf_counter() - began,
        model=finished.algorithm.model,
        engine="fast",
        components=outcome.progress.ahead.get(COMPONENTS),
        beside=made_beside(stages, outcome.progress.ahead),
        data_accounts=data_accounts(finished.totals, stages),
        evaluation=with_names(
            evaluation_facts(stages, outcome, unmeasured=finished.unmeasured),
            experiment.label_names,
        ),
    )
    told = dp_sgd_facts(
        plan,
        answered=cohort.session.answered,
        records=world.block.sizes,
        before=cohort.session.before,
        precision=job.dp_sgd.precision,
        device=str(getattr(world.model, "device", "cpu")),
    )
    summary = with_simulated_figures(summary, job=job, experiment=world, theta=theta, dp_sgd=told)
    if hidden is not None:
        from parley.simulations.audit.self_audit import self_audit  # noqa: PLC0415 - start-up: scipy, for such runs alone

        found = self_audit(hidden, world.model, theta, delta=summary.primary.delta)
        summary = summary.adding(self_audit=found)
    summary = keep(
        finished,
        job=job,
        folder=folder,
        summary=summary,
        features=experiment.features,
        with_table=lambda told, table, tensors: with_table_figures(
            told, table, finished.algorithm, job.algorithm, tensors, world
        ),
    )
    return Run(summary=summary, folder=folder.path, theta=theta)


def _coins(job: Job, canaries: int) -> dict[str, int]:
    """How many canaries, and the seed of their directions and coins: nothing of the noise's."""
    if not canaries:
        return {}
    seed = secrets.randbits(64) if job.seed is None else job.seed
    return {"canaries": canaries, "seed": seed}


def _evaluator(
    job: Job, experiment: Experiment
) -> Callable[[np.ndarray[Any, Any], int], dict[str, Any]]:
    every = experiment.evaluate_every(job.run.evaluate_every)

    def evaluate(theta: np.ndarray[Any, Any], number: int) -> dict[str, Any]:
        if number != job.rounds and (every == 0 or number % every):
            return {}
        figures = experiment.evaluate(theta)
        # A model that diverged has no finite loss; the run says so with null, not by stopping.
        return {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in figures.items()
        }

    return evaluate


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
