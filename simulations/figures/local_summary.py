"""What a run of real processes on one machine came to, with what only its launcher may know.

The server's summary has no figure that would be a release. Here all parties are the launcher's own:
it evaluates the final model on the job's data, and reads the parties' ledgers, marked as the fast
engine marks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job import Job
from parley.server.planning.release import algorithm_for
from parley.server.planning.stages import Stage, rounds_of, spent_before, stages_of
from parley.server.records.evaluation import with_names
from parley.server.records.summary import RunSummary
from parley.simulations.data.world import Experiment
from parley.simulations.figures.dp_sgd_summary import dp_sgd_facts
from parley.simulations.figures.summary import with_simulated_figures


def local_summary(
    summary: RunSummary,
    *,
    job: Job,
    experiment: Experiment,
    model: Mapping[str, NDArray[np.float64]],
    parties: list[Path],
) -> RunSummary:
    """The server's summary with the simulation's figures.

    Args:
        model: the tensors of the final model.
        parties: the parties' folders, by index.
    """
    algorithm = algorithm_for(job, experiment.model, experiment.federation)
    stages = stages_of(
        job,
        algorithm=algorithm,
        federation=experiment.federation,
        features=experiment.block.features.shape[1],
        components=experiment.components,
        run_id=summary.run_id,
    )
    rounds = rounds_of(stages)
    facts = dp_sgd_facts(
        rounds.plan,
        answered=np.array([_answered(home, summary.run_id, rounds) for home in parties]),
        records=experiment.block.sizes,
        before=spent_before(stages, stages.index(rounds))[rounds.plan.primary.unit],
        precision=job.dp_sgd.precision,
        device=str(getattr(experiment.model, "device", "cpu")),
    )
    summary = summary.adding(evaluation=with_names(summary.evaluation, experiment.label_names))
    experiment = experiment.under(rounds.algorithm(dict(model)))
    return with_simulated_figures(
        summary, job=job, experiment=experiment, theta=model["theta"], dp_sgd=facts
    )


def _answered(home: Path, run_id: str, rounds: Stage) -> int:
    """How many rounds of a run a party's own ledger was charged for."""
    path = home / "ledger.sqlite"
    if not path.exists():
        return 0
    with Ledger.open(path, read_only=True) as ledger:
        # A round has an entry for each of its guarantees.
        charged = {recorded.entry.index for recorded in ledger.entries(run_id)}
        return len(charged.intersection(rounds.numbers))
