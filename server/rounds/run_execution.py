"""Run the stages of a run to its outcome, for all engines.

The caller builds facts, stages and cohorts, and knows the data. The rest is the same for a
simulation and for real parties. The folder and the ledger are locked and checked. The budget of all
stages is reserved before any request to a party. Every stage goes through
`parley.server.rounds.round_loop`, and the unused reservation is returned. A run that was killed
resumes in the stage, and at the release, of its ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import get_learner
from parley.client.algorithms.task_codec import describe_task
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.job import Job
from parley.server.model_file import ARRAYS_FILE
from parley.server.planning.budget_check import register_budgets, reserve_budget
from parley.server.planning.run_stages import RunStage, get_rounds_stage
from parley.server.records.model_metadata import build_model_description, build_model_tensors
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import RunProgress
from parley.server.records.run_summary import RunSummary
from parley.server.records.summary_builder import FinishedRun
from parley.server.rounds.cohort import Cohort, PartyFailed
from parley.server.rounds.round_loop import Evaluate, find_resume_point, run_stage
from parley.server.rounds.run_observer import Observer
from parley.server.statements.privacy_statement import build_privacy_statement
from parley.server.synthetic.registry import Tensors, makes_records

BuildCohort = Callable[[RunStage, FederatedAlgorithm, RunProgress], AbstractContextManager[Cohort]]
"""A stage, its algorithm and its first state → its parties, for as long as it runs."""


def execute_run(
    stages: Sequence[RunStage],
    *,
    job: Job,
    build_cohort: BuildCohort,
    budgets: Sequence[DatasetBudget],
    folder: RunFolder,
    observer: Observer | None = None,
    evaluate: Evaluate = lambda theta, number: {},
    roster: str = "",
) -> FinishedRun:
    """Run the stages that are not done yet, of a new or resumed run.

    Args:
        roster: id of the deployment that the run begins with; empty in a simulation.

    Raises:
        BudgetExceeded: the ledger has no room for all the stages; nothing was spent.
        LedgerError, RunFolderError, JobError: the run cannot begin or resume.
        TooFewSurvivors, PartyFailed: in a stage ahead of the rounds; see `run_stage`.
    """

    def observe(line: RoundLine) -> None:
        folder.append_round(line)
        if observer:
            observer.round_done(line)

    @contextmanager
    def open_cohort(
        stage: RunStage, algorithm: FederatedAlgorithm, progress: RunProgress
    ) -> Iterator[Cohort]:
        with build_cohort(stage, algorithm, progress) as cohort:
            if observer and not stage.name:
                observer.started(job, stage.plan, folder.path, progress.done)
            yield cohort

    with folder.hold_lock():
        new, place = not folder.is_begun, job.privacy.ledger or folder.ledger_path
        with folder.discard_if_refused(new=new), Ledger.open(place, create=new) as ledger:
            dataset = register_budgets(ledger, budgets)[0].name
            if new:
                folder.mark_begun()
                if roster:
                    folder.save_roster_id(roster)
            _check_log(folder, ledger)
            with reserve_budget(ledger, stages, dataset=dataset, partial=job.run.partial):
                start = find_resume_point(folder, ledger, stages=stages, dataset=dataset)
                run = partial(
                    run_stage,
                    stages,
                    dataset=dataset,
                    randomness=Randomness(seed=job.seed, party=None),
                    ledger=ledger,
                    folder=folder if roster else None,
                    evaluate=evaluate,
                    observe=observe,
                )
                progress, algorithm, unmeasured = _run_stages(stages, start, run, open_cohort)
                head = ledger.get_head()
            totals = ledger.list_accounts() if job.privacy.ledger else ()
    totals = tuple(each for each in totals if each.budget.name == dataset)
    return FinishedRun(
        stages=tuple(stages),
        progress=progress,
        algorithm=get_learner(algorithm),
        theta=algorithm.model_of(progress.state),
        evaluation_failure=unmeasured,
        head=head,
        totals=totals,
    )


def _check_log(folder: RunFolder, ledger: Ledger) -> None:
    """Raise RunFolderError if the folder has a round that the ledger never committed."""
    entries = ledger.iterate_entries(folder.run_id)
    folder.check_ledger({each.entry.index for each in entries if each.outcome is not None})


def _run_stages(
    stages: Sequence[RunStage],
    progress: RunProgress,
    run: Callable[..., RunProgress],
    open_cohort: BuildCohort,
) -> tuple[RunProgress, FederatedAlgorithm, str]:
    """Return how the stages end, the last algorithm, and why the evaluation failed, if it did."""
    rounds, unmeasured = get_rounds_stage(stages), ""
    after = stages.index(rounds) + 1
    while True:
        stage = stages[progress.stage]
        algorithm = stage.algorithm(progress.state)
        progress = replace(progress, state=progress.state or algorithm.init())
        try:
            with open_cohort(stage, algorithm, progress) as cohort:
                progress = run(algorithm=algorithm, cohort=cohort, start=progress)
        except (TooFewSurvivors, PartyFailed) as error:
            if progress.stage < after:
                raise
            unmeasured = str(error)  # The model is valid without an evaluation.
            progress = replace(progress, status="complete")
            break
        if stage is stages[-1] or progress.status != "complete":
            break
        progress = replace(progress, stage=progress.stage + 1, done=0)
    if progress.stage >= after:
        progress = replace(progress, done=rounds.rounds)
    return progress, algorithm, unmeasured


def save_results(
    finished: FinishedRun,
    *,
    job: Job,
    folder: RunFolder,
    summary: RunSummary,
    features: Mapping[str, Any],
) -> tuple[RunSummary, Tensors]:
    """Write model and summary, the summary last; return it, and the tensors of a table's generator.

    Optional output (a baseline, a report) comes later, so that a stop there loses nothing that was
    paid.

    Args:
        features: name, settings and digest of the public feature map; empty: none.

    Raises:
        GenerationError: no rows can be drawn from the release.
    """
    tensors = build_model_tensors(finished.theta, finished.progress.state)
    more: Tensors = {}
    table = None
    if makes_records(finished.algorithm):
        from parley.server.synthetic.generation import generate_synthetic  # noqa: PLC0415 - most jobs make no synthetic rows

        more, table = generate_synthetic(
            finished.algorithm,
            job.algorithm,
            finished.theta,
            schema=folder.schema,
            folder=folder.path,
        )
    if table is not None:
        summary = summary.with_fields(synthetic=table)
    described = build_model_description(
        describe_task(finished.algorithm),
        label=job.algorithm.data_reading or job.model.label,
        intercept=job.model.has_intercept,
        schema=folder.schema,
        features=features,
    )
    statement = build_privacy_statement(summary)
    if name_arrays := getattr(finished.algorithm, "name_arrays", None):  # for the user's own code
        folder.write_model(name_arrays(finished.theta), statement, ARRAYS_FILE)
    folder.write_model(tensors | more, {**described, **statement})
    folder.write_summary(summary)
    return summary, more
