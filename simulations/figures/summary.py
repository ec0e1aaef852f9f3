"""What a run comes to: the content of `summary.json`, and advice that its numbers support."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.rounding import as_written, shown_up
from parley.server.jobs.job import Job
from parley.server.records.progress import Outcome
from parley.server.records.run_folder import RunFolder
from parley.server.records.summarising import run_summary
from parley.server.records.summary import RunSummary
from parley.simulations.data.spread import partition_facts
from parley.simulations.data.world import Experiment

__all__ = ["summarise", "with_simulated_figures"]

SIMULATION_ONLY = (
    "loss",
    "baseline_loss",
    "excess_loss",
    "accuracy",
    "baseline_accuracy",
    "majority_accuracy",
    "records_by_party",
    "partition",
    "advice",
)


def summarise(
    *,
    job: Job,
    plan: ReleasePlan,
    experiment: Experiment,
    outcome: Outcome,
    theta: NDArray[np.float64],
    secure_sum: dict[str, Any],
    folder: RunFolder,
    ledger_head: dict[str, Any],
    version: str,
    seconds: float,
    dp_sgd: dict[str, Any] | None = None,
    components: dict[str, Any] | None = None,
) -> RunSummary:
    """The summary of a run that ended, complete or not.

    Args:
        dp_sgd: what DP-SGD came to, party by party.
        components: parties and traffic of the private components' release.

    ε and δ are what was spent, by the lowest proved conversion.
    """
    summary = run_summary(
        job=job,
        plan=plan,
        outcome=outcome,
        secure_sum=secure_sum,
        folder=folder,
        ledger_head=ledger_head,
        version=version,
        seconds=seconds,
        engine="fast",
        components=components,
    )
    return with_simulated_figures(
        summary, job=job, experiment=experiment, theta=theta, dp_sgd=dp_sgd
    )


def with_simulated_figures(
    summary: RunSummary,
    *,
    job: Job,
    experiment: Experiment,
    theta: NDArray[np.float64],
    dp_sgd: dict[str, Any] | None,
) -> RunSummary:
    """A run's summary with what only a simulation may know, marked so.

    Loss is the federated training objective with its λ term, accuracy is measured on the
    held-out records, the baseline is the objective's non-private optimum.
    """
    if dp_sgd is not None:
        device = str(getattr(experiment.model, "device", "cpu"))
        dp_sgd = {**dp_sgd, "precision": job.dp_sgd.precision, "device": device}
    figures = experiment.figures(theta)
    summary = summary.adding(
        records_by_party=experiment.block.sizes.tolist(),
        **figures,
        partition=partition_facts(job, experiment.block.labels, experiment.block.offsets),
        simulation_only=SIMULATION_ONLY,
        dp_sgd=dp_sgd,
    )
    diverged = not math.isfinite(figures.get("loss") or 0.0)
    return summary.adding(advice=_advice(summary, diverged=diverged))


def _advice(summary: RunSummary, *, diverged: bool) -> list[str]:
    """What would improve the result, said only where the numbers support it."""
    advice = []
    noise = summary.noise
    if summary.delta > summary.delta_budget:
        advice.append(
            f"δ = {as_written(summary.delta_budget)} was asked for; the rounded l2-laplace "
            "noise is pure but for its sampler's distance, stated as "
            f"δ = {shown_up(summary.delta, 3)}. laplace-l1 keeps δ = 0 to the last bit."
        )
    if noise.seeded:
        advice.append("The noise was seeded: repeat without a seed before anything is released.")
    if diverged:
        advice.append(
            "The model's loss on the training records is not finite: records whose gradient is not "
            "finite add zero, so that nothing tells of them. A smaller learning rate, or a model "
            "that is finite on every row, helps."
        )
    lost = (summary.baseline_accuracy or 0) - (summary.accuracy or 0)
    if summary.dp_sgd is not None:
        if summary.dp_sgd.precision == "float32":
            advice.append(
                "Trained in float32, where it is measured, not proved, that rounding keeps every "
                "clipped gradient's share within C: dp-sgd.precision = 'float64' is proved."
            )
        if lost > 0.01:
            advice.append(
                "More records a party, a larger dp-sgd.sampling-rate or more rounds at the same ε "
                "usually help DP-SGD, and so does a smaller network."
            )
    elif summary.status == "complete" and ((summary.excess_loss or 0) > 0.01 or lost > 0.01):
        advice.append(
            f"The noise is proportional to 1/(parties × records × ε): twice the records a party "
            f"(now at least {summary.min_records}), twice the parties (now "
            f"{summary.parties}) or twice ε (now {as_written(summary.epsilon_budget)}) each "
            "halve it."
        )
        if summary.algorithm == "output-perturbation":
            advice.append(
                "gradient-perturbation usually loses less at the same ε when δ > 0 is acceptable."
            )
        elif summary.algorithm == "gradient-perturbation":
            advice.append(
                "Fewer rounds mean less noise in each (σ grows as √rounds); a larger model.lambda "
                "needs fewer. `parley plan` with another algorithm.rounds or model.lambda says "
                "what each would cost, before anything is spent."
            )
    if summary.delta * sum(summary.records_by_party) >= 1:
        advice.append(
            f"δ = {shown_up(summary.delta)} is not small against 1/N for N = "
            f"{sum(summary.records_by_party)} records: a mechanism that shows one record in "
            "full can meet it. Choose privacy.delta well below 1/N."
        )
    if summary.parties == 1:
        advice.append("One party: the centralised case, nobody hides in a sum of one.")
    return advice
