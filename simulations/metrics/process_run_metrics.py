"""Add a simulation's metrics to the summary of a run whose parties were other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job import Job
from parley.server.planning.run_stages import RunStage, compute_spent, get_rounds_stage
from parley.server.records.evaluation_summary import with_label_names
from parley.server.records.run_summary import RunSummary
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.metrics.simulated_metrics import add_simulated_metrics, build_dp_sgd_facts


def build_local_summary(
    summary: RunSummary,
    *,
    job: Job,
    experiment: Experiment,
    model: Mapping[str, NDArray[np.float64]],
    parties: list[Path],
) -> RunSummary:
    """Return the server's summary with the simulation's metrics.

    Args:
        parties: the parties' folders, by index.
    """
    job = job.resolve_auto(experiment.federation, experiment.data.classes)
    _, stages = replace(experiment.plan_inputs, run_id=summary.run_id).build(job)
    rounds = get_rounds_stage(stages)
    before = compute_spent(stages, [each.rounds for each in stages[: stages.index(rounds)]])
    charged = [_count_charged_rounds(home, summary.run_id, rounds) for home in parties]
    facts = build_dp_sgd_facts(
        rounds.plan,
        answered=np.array(charged),
        records=experiment.block.sizes,
        before=before[rounds.plan.primary.unit],
        model=experiment.model,
    )
    evaluation = with_label_names(summary.evaluation, experiment.data.label_names)
    summary = summary.with_fields(evaluation=evaluation)
    experiment = experiment.bind_algorithm(rounds.algorithm(dict(model)))
    return add_simulated_metrics(
        summary, job=job, experiment=experiment, theta=model["theta"], dp_sgd=facts
    )


def _count_charged_rounds(home: Path, run_id: str, rounds: RunStage) -> int:
    """Return the number of rounds of a run that a party's own ledger was charged for."""
    path = home / "ledger.sqlite"
    if not path.exists():
        return 0
    with Ledger.open(path, read_only=True) as ledger:
        # A round has an entry for each of its guarantees.
        charged = {recorded.entry.index for recorded in ledger.list_entries(run_id)}
        return len(charged.intersection(rounds.numbers))
