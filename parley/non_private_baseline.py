"""Train a job's non-private baseline and write it to a file: `parley twin`.

Methods 1 and 2 of Jayaraman et al. (2018), section 5. There is no run, no release and no ledger. A
simulation that owns all parties' records solves the job's objective. No setting of a job, a plan or
a party's policy can request it from real parties.

    centralised    θ* = argmin Σ_j w_j J_j(θ)             all records in one place
    aggregated     Σ_j w_j θ*_j, θ*_j = argmin J_j(θ)     the mean of the parties' own optima
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from parley.client.models.linear_model_codec import encode_linear_model
from parley.command_options import JobFile, Overrides
from parley.safe_io.file_writing import write_file
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.model_file import NON_PRIVATE, ModelFileError, encode_model
from parley.server.records.model_metadata import build_model_description
from parley.simulations.data.experiment_loading import load_experiment
from parley.version import __version__

_WARNING = (
    "No privacy: anyone who sees this model can learn about its training records. Use it only in a "
    "simulation, as a baseline."
)


@dataclass(frozen=True, kw_only=True)
class NonPrivateModel:
    """A model without any privacy protection.

    Attributes:
        metrics: Metrics of the training and held-out records, by name; simulation only.
    """

    method: str
    path: Path
    metrics: Mapping[str, float | None]


def train_non_private(job: Job, *, method: str, out: Path) -> NonPrivateModel:
    """Train a job's linear model without noise, from all records of a simulation.

    Args:
        job: Data, parties and model; algorithm and budget are ignored.
        out: The model file to create. It states that it promises no privacy.

    Raises:
        JobError: the method is unknown, the parties are real, there is a ledger, or the model is
            not linear.
    """
    if method not in NON_PRIVATE:
        raise JobError(f"Expected a twin of {', '.join(NON_PRIVATE)}, got {method!r}.")
    if not job.run.in_process or job.privacy.ledger:
        raise JobError(
            "Expected run.engine = 'fast' and no privacy.ledger: a non-private model needs the "
            "records of all parties, which only a simulation has. Real parties are never asked for "
            "it."
        )
    if not job.model.regularisation:
        raise JobError(
            f"Expected a linear model with lambda > 0, got {job.model.kind!r}. For a network, a "
            "simulated run trains its non-private model itself."
        )
    if out.exists():
        raise ModelFileError(f"Expected a new file for --out, {out} exists. Name another file.")
    experiment = load_experiment(job)
    job = job.resolve_auto(experiment.federation, experiment.data.classes)
    ways = {"centralised": experiment.compute_optimum, "aggregated": experiment.compute_aggregated}
    theta: Any = ways[method]()
    description = build_model_description(
        {"kind": method, "model": encode_linear_model(experiment.model), "settings": {}},
        label=job.model.label,
        intercept=job.model.has_intercept,
        schema=experiment.data.schema,
        features=experiment.data.features,
    )
    said = {"parley.version": __version__, "parley.epsilon": "none", "parley.statement": _WARNING}
    write_file(out, encode_model({"theta": theta}, {**description, **said}))
    measured = {
        "training loss": experiment.compute_loss(theta),
        "excess loss": experiment.compute_loss(theta)
        - experiment.compute_loss(experiment.compute_optimum()),
        experiment.model.metric_name: experiment.compute_accuracy(theta),
        "most common label": experiment.majority_accuracy,
    }
    return NonPrivateModel(method=method, path=out, metrics=measured)


def train_non_private_command(
    method: Annotated[
        str,
        typer.Option(
            help="centralised: all records in one place; aggregated: the mean of "
            "the parties' own optima."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Model file to write.")],
    job: JobFile = None,
    sets: Overrides = None,
) -> None:
    """Train a job's model without privacy, in a simulation, as a baseline.

    It uses no noise and no ledger, and it has no ε. It works only in simulations, where all records
    are in one place. Anyone who sees the model can learn about the records.
    """
    made = train_non_private(load_job(job, overrides=sets or ()), method=method, out=out)
    typer.echo(f"{made.path}: {made.method}. {_WARNING}")
    for name, value in made.metrics.items():
        typer.echo(f"  {name}: {'–' if value is None else f'{value:.4g}'} (simulation only)")
