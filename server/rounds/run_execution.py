"""A run from its stages to its outcome: the one procedure of every engine.

The caller makes facts, stages and cohorts, and knows what data there are. From here on it is the
same for a simulation and for real parties: the folder and the ledger are locked and checked, the
budget of all the stages is set aside before a party is asked for anything, every stage goes
through `parley.server.rounds.round_loop`, and what was not used is given back. A run that was
killed goes on in the stage, and at the release, that its ledger says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.held_out_counts import learner_of
from parley.client.algorithms.registry import describe_task
from parley.client.contract.model_state import State
from parley.privacy.ledger.account import Account
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.hash_chain import Head
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.job import Job
from parley.server.planning.budget_check import holding, registered
from parley.server.planning.run_stages import COMPONENTS, Stage, assumed, made_beside, rounds_of
from parley.server.records.data_budgets import data_accounts
from parley.server.records.model_metadata import model_description, model_tensors, privacy_statement
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import Outcome, Progress
from parley.server.records.run_summary import RunSummary
from parley.server.records.summary_builder import evaluation_facts, run_summary, with_names
from parley.server.rounds.cohort import Cohort, PartyFailed
from parley.server.rounds.party_inspection import data_head
from parley.server.rounds.round_loop import Evaluate, resume_point, run_stage
from parley.server.rounds.run_observer import Observer
from parley.server.synthetic.generation import Tensors, generated

CohortOf = Callable[[Stage, FederatedAlgorithm, Progress], AbstractContextManager[Cohort]]
"""A stage, what it computes and where it begins → its parties, for as long as it runs."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that ended.

    Attributes:
        unmeasured: why there is no evaluation, where one was asked for; else empty.
        totals: of the data's budgets, where runs share the ledger.
    """

    outcome: Outcome
    algorithm: FederatedAlgorithm
    theta: NDArray[np.float64]
    unmeasured: str
    head: Head
    totals: tuple[Account, ...]


def execute(
    stages: Sequence[Stage],
    *,
    job: Job,
    cohort_of: CohortOf,
    budgets: Sequence[DatasetBudget],
    folder: RunFolder,
    observer: Observer | None = None,
    evaluate: Evaluate = lambda theta, number: {},
    roster: str = "",
) -> Finished:
    """Runs the stages that are not done yet, of a run that is new or goes on.

    Args:
        roster: id of the deployment that it is begun with; empty in a simulation.

    Raises:
        BudgetExceeded: the ledger has no room for all the stages; nothing was spent.
        LedgerError, RunFolderError, JobError: the run cannot begin, or go on.
        TooFewSurvivors, PartyFailed: of a stage ahead of the rounds; see `run_stage`.
    """
    with folder.locked():
        new, place = not folder.commissioned, job.privacy.ledger or folder.ledger_path
        with folder.unless_refused(new=new), Ledger.open(place, create=new) as ledger:
            dataset = registered(ledger, budgets)[0].name
            if new:
                folder.commission()
                if roster:
                    folder.keep_roster(roster)
            known = ledger.entries(folder.run_id)
            folder.check_ledger([each.entry.index for each in known if each.outcome is not None])
            with holding(ledger, stages, dataset=dataset, partial=job.run.partial):
                start = resume_point(ledger, stages=stages, dataset=dataset)
                start = replace(start, lines=folder.rewrite_rounds(start.lines))
                outcome, algorithm, unmeasured = _through(
                    stages,
                    start,
                    job=job,
                    cohort_of=cohort_of,
                    dataset=dataset,
                    ledger=ledger,
                    folder=folder,
                    observer=observer,
                    evaluate=evaluate,
                    steps_kept=bool(roster),
                )
                head = ledger.head()
            totals = ledger.totals() if job.privacy.ledger else ()
    totals = tuple(each for each in totals if each.budget.name == dataset)
    return Finished(
        outcome=outcome,
        algorithm=learner_of(algorithm),
        theta=algorithm.model_of(outcome.progress.state),
        unmeasured=unmeasured,
        head=head,
        totals=totals,
    )


def _through(
    stages: Sequence[Stage],
    progress: Progress,
    *,
    job: Job,
    cohort_of: CohortOf,
    dataset: str,
    ledger: Ledger,
    folder: RunFolder,
    observer: Observer | None,
    evaluate: Evaluate,
    steps_kept: bool,
) -> tuple[Outcome, FederatedAlgorithm, str]:
    """How the stages end, the last algorithm, and why the model was not measured, if it was not."""

    def observe(line: RoundLine) -> None:
        folder.append_round(line)
        if observer:
            observer.round_done(line)

    rounds, unmeasured = rounds_of(stages), ""
    after = stages.index(rounds) + 1
    outcome = Outcome(status="complete", reason="", progress=progress)
    while True:
        stage, following = stages[progress.stage], stages[progress.stage + 1 :]
        algorithm = stage.algorithm(progress.state)
        progress = replace(progress, state=progress.state or algorithm.init())
        try:
            with cohort_of(stage, algorithm, progress) as cohort:
                if observer and stage is rounds:
                    observer.started(job, stage.plan, folder.path, progress.done)
                outcome = run_stage(
                    stage,
                    algorithm=algorithm,
                    dataset=dataset,
                    cohort=cohort,
                    randomness=Randomness(seed=job.seed, party=None),
                    ledger=ledger,
                    start=progress,
                    folder=folder if steps_kept else None,
                    evaluate=evaluate,
                    hand_on=_start_of(stage, following),
                    observe=observe,
                )
        except (TooFewSurvivors, PartyFailed) as error:
            if progress.stage < after:
                raise
            unmeasured = str(error)  # the model stands without it
            break
        if not following or outcome.status != "complete":
            break
        progress = replace(outcome.progress, stage=progress.stage + 1, done=0)
    if progress.stage >= after:
        outcome = replace(outcome, progress=replace(outcome.progress, done=rounds.rounds))
    return outcome, algorithm, unmeasured


def _start_of(stage: Stage, following: Sequence[Stage]) -> Callable[[State], State]:
    """The state after a stage → what is kept: the start of the next stage, if there is one."""
    if not following:
        return lambda state: state

    def start(state: State) -> State:
        result = stage.result(state)
        return {**following[0].algorithm(result).init(), **result}

    return start


def summary_of(
    finished: Finished,
    stages: Sequence[Stage],
    *,
    job: Job,
    folder: RunFolder,
    secure_sum: dict[str, Any],
    began: float,
    engine: str,
    version: str,
    deployment: str | None = None,
    labels: Sequence[str] = (),
) -> RunSummary:
    """The summary of a run that ended, as far as its server knows it.

    Args:
        secure_sum: what is known of the protocol beside its traffic.
        began: when, by `time.perf_counter`.
    """
    outcome = finished.outcome
    evaluation = evaluation_facts(stages, outcome, unmeasured=finished.unmeasured)
    return run_summary(
        job=job,
        plan=rounds_of(stages).plan,
        outcome=outcome,
        secure_sum=secure_sum,
        folder=folder,
        ledger_head={"records": finished.head.records, "hash": finished.head.hash},
        version=version,
        seconds=time.perf_counter() - began,
        model=finished.algorithm.model,
        engine=engine,
        components=outcome.progress.ahead.get(COMPONENTS),
        beside=made_beside(stages, outcome.progress.ahead),
        assumptions=assumed(stages, outcome.progress.ahead),
        data_accounts=data_accounts(finished.totals, stages),
        deployment=deployment,
        evaluation=with_names(evaluation, labels),
    )


def keep(
    finished: Finished,
    *,
    job: Job,
    folder: RunFolder,
    summary: RunSummary,
    features: Mapping[str, Any],
) -> tuple[RunSummary, Tensors]:
    """Write model and summary, the summary last; return it, and the tensors of a table's generator.

    What is optional (a baseline, a report) comes after: a stop there loses nothing that was paid.

    Args:
        features: name, settings and digest of the public map of every record; empty: none.

    Raises:
        NoTable: a release that no rows can be made of.
    """
    tensors = model_tensors(finished.theta, finished.outcome.progress.state)
    more, table = generated(
        finished.algorithm,
        job.algorithm,
        finished.theta,
        schema=folder.schema,
        folder=folder.path,
    )
    if table is not None:
        summary = summary.adding(synthetic=table)
    named = data_head(job)
    described = model_description(
        describe_task(finished.algorithm),
        label=named["label"],
        intercept=named["intercept"],
        schema=folder.schema,
        features=features,
    )
    folder.write_model(tensors | more, {**described, **privacy_statement(summary)})
    folder.write_summary(summary)
    return summary, more
