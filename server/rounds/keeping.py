"""What a run that ended leaves in its folder: model file, synthetic table if any, summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parley.client.algorithms.registry import describe_task
from parley.server.jobs.job import Job
from parley.server.planning.stages import COMPONENTS, Stage, made_beside, rounds_of
from parley.server.records.data_budgets import data_accounts
from parley.server.records.evaluation import evaluation_facts, with_names
from parley.server.records.run_folder import RunFolder
from parley.server.records.statement import model_description, model_tensors, privacy_statement
from parley.server.records.summarising import run_summary
from parley.server.records.summary import RunSummary
from parley.server.records.synthetic import Synthetic
from parley.server.rounds.execute import Finished
from parley.server.rounds.inspection import data_head
from parley.server.synthetic.generation import Tensors, generated


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
        data_accounts=data_accounts(finished.totals, stages),
        deployment=deployment,
        evaluation=with_names(evaluation, labels),
    )


def _with_table(summary: RunSummary, table: Synthetic, tensors: Tensors) -> RunSummary:
    del tensors
    return summary.adding(synthetic=table)


def keep(
    finished: Finished,
    *,
    job: Job,
    folder: RunFolder,
    summary: RunSummary,
    features: Mapping[str, Any],
    with_table: Callable[[RunSummary, Synthetic, Tensors], RunSummary] = _with_table,
) -> RunSummary:
    """Writes the files, the summary last: a folder that has one has all.

    Args:
        features: name, settings and digest of the public map of every record; empty: none.
        with_table: summary, table, its generator → the summary with what is known of the table.

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
        summary = with_table(summary, table, more)
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
    return summary
