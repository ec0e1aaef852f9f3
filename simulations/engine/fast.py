"""The fast engine: all parties of a job as one block, in this process.

What it leaves behind is a run folder like any other engine's; what only a simulation can know
(loss, accuracy, the non-private baseline) is marked so wherever it is written.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.planning.stages import rounds_of
from parley.server.records.run import Run
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.execute import Finished, execute
from parley.server.rounds.keeping import keep, summary_of
from parley.server.rounds.observer import Observer
from parley.simulations.data.experiment import load_experiment
from parley.simulations.data.keeping import data_mib, peak_mib
from parley.simulations.data.world import Experiment
from parley.simulations.engine.faults import parse_faults
from parley.simulations.engine.parties import Parties
from parley.simulations.engine.summing import Adding, summed
from parley.simulations.figures.dp_sgd_summary import dp_sgd_facts
from parley.simulations.figures.summary import with_simulated_figures
from parley.simulations.figures.synthetic import with_table_figures

if TYPE_CHECKING:
    from parley.simulations.audit.self_audit import Canaries


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
    experiment = load(job)
    job = job.settled(experiment.federation, experiment.classes)
    if folder is not None and folder.schema not in {"", experiment.schema}:
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
    folder.keep_schema(experiment.schema)
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
    return _kept(finished, parties, hidden, folder=folder, began=began, version=version)


def _kept(
    finished: Finished,
    parties: Parties,
    hidden: Canaries | None,
    *,
    folder: RunFolder,
    began: float,
    version: str,
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
        labels=world.label_names,
    )
    dp_sgd = dp_sgd_facts(
        rounds_of(parties.stages).plan,
        answered=cohort.session.answered,
        records=world.block.sizes,
        before=cohort.session.before,
        precision=job.dp_sgd.precision,
        device=str(getattr(world.model, "device", "cpu")),
    )
    summary = summary.adding(peak_mib=peak_mib(), data_mib=data_mib(world.block))
    summary = with_simulated_figures(summary, job=job, experiment=world, theta=theta, dp_sgd=dp_sgd)
    if hidden is not None:
        # Rounds count alike in the last iterate, not in a mean of them. Either is covered: every
        # round's noisy sum is what is charged.
        last = finished.outcome.progress.state.get("theta", theta)
        found = hidden.bounds(world.model, last, delta=summary.primary.delta)
        summary = summary.adding(self_audit=found)
    summary = keep(
        finished,
        job=job,
        folder=folder,
        summary=summary,
        features=world.features,
        with_table=lambda known, table, tensors: with_table_figures(
            known, table, finished.algorithm, job.algorithm, tensors, world
        ),
    )
    return Run(summary=summary, folder=folder.path, theta=theta)


def _coins(job: Job, canaries: int) -> dict[str, int]:
    """How many canaries, and the seed of their directions and coins: nothing of the noise's."""
    if not canaries:
        return {}
    seed = secrets.randbits(64) if job.seed is None else job.seed
    return {"canaries": canaries, "seed": seed}
